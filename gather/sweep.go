package gather

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/blob"
)

// ErrNotEnded means that no end of the gather is recorded, so that its parts are still needed.
var ErrNotEnded = errors.New("the gather has not ended")

// Sweep deletes the parts of a gather that has ended, and keeps its end. It can be repeated, and should be when a message
// comes after the end, because its part may be stored again: [Gather.Complete] and [Gather.Once] send every such message this
// way. It fails with [ErrNotEnded] if no end is recorded. A part that cannot be deleted does not keep the others: the
// first error is returned in the end. It takes a call of the store for each part, one after the other, and two more.
func (g *Gather) Sweep(ctx context.Context, id string) error {
	if err := check(id, 0, 0); err != nil {
		return failed(id, "sweep", err)
	}
	ended, err := blob.Exists(ctx, g.store, g.EndRef(id))
	if err == nil && !ended {
		err = fmt.Errorf("%w: its parts are kept until Once has recorded its end", ErrNotEnded)
	}
	if err == nil {
		err = g.sweep(ctx, id)
	}
	if err != nil {
		return failed(id, "sweep", err)
	}
	return nil
}

// Forget deletes the parts of a gather and then its end, as if it had never been. It can be repeated. It is for a gather of which
// no message can come any more: a message that does begins the gather anew, and it never completes. A gather that has not
// ended is forgotten too.
func (g *Gather) Forget(ctx context.Context, id string) error {
	if err := check(id, 0, 0); err != nil {
		return failed(id, "forget", err)
	}
	g.watches.forget(id)
	err := g.sweep(ctx, id)
	if err == nil {
		// The end last: an interrupted Forget leaves a gather that has ended.
		err = g.store.Delete(ctx, g.EndRef(id))
	}
	if err != nil {
		return failed(id, "forget", err)
	}
	return nil
}

// sweep deletes the parts that are stored, whatever their numbers.
func (g *Gather) sweep(ctx context.Context, id string) error {
	var first error
	for ref, err := range g.refs(ctx, id) {
		if err == nil {
			if _, ok := g.number(id, ref); !ok {
				continue
			}
			err = g.store.Delete(ctx, ref)
		}
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil && first == nil {
			first = err
		}
		if ctx.Err() != nil {
			break
		}
	}
	return first
}
