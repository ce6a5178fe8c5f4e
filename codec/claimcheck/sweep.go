package claimcheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/internal/units"
)

// Body is a stored body, or the tombstone that has taken its place.
type Body struct {
	blob.Info // of a tombstone: Size is 0, and Modified is when the body was replaced

	Settled bool // a tombstone
}

// Removed says what a sweep or a purge removed.
type Removed struct {
	Blobs int
	Bytes int64
}

// List yields all bodies and tombstones, in the order of their names. A body that is not Settled
// belongs to a message that waits, in a queue or a poison queue, or is an orphan. An error is
// yielded last, with a zero Body.
func (c *Claims) List(ctx context.Context) iter.Seq2[Body, error] {
	return func(yield func(Body, error) bool) {
		for info, err := range c.store.List(ctx, c.container, folder) {
			if err != nil {
				yield(Body{}, fmt.Errorf("list bodies: %w", err))
				return
			}
			if !yield(bodyOf(info), nil) {
				return
			}
		}
	}
}

func bodyOf(info blob.Info) Body {
	return Body{info, info.Metadata[stateKey] == settled}
}

// Sweep removes the tombstones that are older than Options.Retention, by the store's clock. Call it
// now and then, such as once a day; any number of processes may. One that cannot be removed does
// not keep the others from it, unless the store is away. With an error, such as that of
// [blob.Info.Age], it returns what was removed.
func (c *Claims) Sweep(ctx context.Context) (Removed, error) {
	removed, err := c.remove(ctx, true, c.options.Retention, c.store.Delete)
	if err != nil {
		return removed, fmt.Errorf("sweep tombstones: %w", err)
	}
	return removed, nil
}

// Purge removes the bodies, not the tombstones, that are older than the age, by the store's clock.
// A message that still needs one of them becomes poison: the age must exceed the time that a
// message can spend in its queue and in the poison queue. An age below
// 1 ms is an error. Otherwise errors are as those of Sweep.
func (c *Claims) Purge(ctx context.Context, age time.Duration) (Removed, error) {
	if age <= 0 {
		return Removed{}, fmt.Errorf("purge bodies: the age %v must be positive, such as 720*time.Hour", age)
	}
	if err := units.Wait("the age", age); err != nil {
		return Removed{}, fmt.Errorf("purge bodies: %w", err)
	}
	removed, err := c.remove(ctx, false, age, func(ctx context.Context, ref blob.Ref) error {
		// A list may be minutes old: its job may be done meanwhile, and the tombstone stays.
		info, err := c.store.Stat(ctx, ref)
		if err != nil {
			return err
		}
		if old, err := bodyOf(info).old(false, age); err != nil || !old {
			return cmp.Or(err, errKept)
		}
		return c.store.Delete(ctx, ref)
	})
	if err != nil {
		return removed, fmt.Errorf("purge bodies: %w", err)
	}
	return removed, nil
}

// old reports whether it is older than the age, and a tombstone or not, as settled says.
func (b Body) old(settled bool, age time.Duration) (bool, error) {
	if b.Settled != settled {
		return false, nil
	}
	is, err := b.Age()
	return is > age, err
}

// errKept means that a body was not removed after all.
var errKept = errors.New("it is no longer what was to be removed")

// maxFailures is how many removals in a row may fail before the store counts as away.
const maxFailures = 10

// remove removes what is old with one, which may say errKept.
func (c *Claims) remove(ctx context.Context, settled bool, age time.Duration, one func(context.Context, blob.Ref) error) (Removed, error) {
	var removed Removed
	failed, inARow, first := 0, 0, error(nil)
	for body, err := range c.List(ctx) {
		old := false
		if err == nil {
			old, err = body.old(settled, age)
		}
		if err != nil {
			return removed, errors.Join(err, first)
		}
		if !old {
			continue
		}
		switch err := one(ctx, body.Ref); {
		case err == nil:
			inARow = 0
			removed.Blobs++
			removed.Bytes += body.Size
		case errors.Is(err, errKept), errors.Is(err, blob.ErrMissing): // another process removed it
		default:
			failed, inARow, first = failed+1, inARow+1, cmp.Or(first, err)
		}
		if ctx.Err() != nil || inARow == maxFailures {
			break
		}
	}
	switch {
	case ctx.Err() != nil:
		return removed, context.Cause(ctx)
	case failed > 1:
		return removed, fmt.Errorf("%d could not be removed, the first because: %w", failed, first)
	}
	return removed, first
}
