package roles

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/mosaic/layout"
)

// Resume returns the order of a request that an earlier run of this program submitted, so that it can
// be awaited and delivered as if this run had submitted it. It sends nothing and reads nothing. Of r it uses Slices, Format, Deliver
// and Progress. The order fails
// with [blob.ErrMissing] if the store has had nothing of the request for half a minute.
func (b *Broker) Resume(id uuid.UUID, r Request) *Order {
	o := newOrder(b, id, r)
	o.resumed = true
	b.mu.Lock()
	defer b.mu.Unlock()
	b.orders[id] = o
	return o
}

// NoLayoutError means that a request has ended, and its layout was deleted with it.
type NoLayoutError struct{ Request uuid.UUID }

// Error says which request it was.
func (e *NoLayoutError) Error() string {
	return fmt.Sprintf("request %v has ended, and its layout was deleted", e.Request)
}

// lookForLayout is the interval at which Layout checks the store.
const lookForLayout = 200 * time.Millisecond

// Layout returns which tile lies in which cell of the whole mosaic. It waits until the job controller, in whichever process,
// has chosen and stored that, or ctx ends. The layout can be read until the mosaic is delivered, which is after Deliver
// returned, or the request fails. After that the error is a [*NoLayoutError]. It retries while the store does not respond. Safe
// for concurrent use.
func (o *Order) Layout(ctx context.Context) (*layout.Layout, error) {
	tick := time.NewTicker(lookForLayout)
	defer tick.Stop()
	for {
		whole, err := o.broker.jobs.layout(ctx, o.ID)
		switch {
		case err == nil:
			return whole, nil
		case errors.Is(err, errNotYet):
			var e *end
			e, err = o.broker.jobs.ended(ctx, o.ID)
			if done, _ := o.Finished(); done || err == nil && e != nil && e.Output == "" {
				return nil, &NoLayoutError{o.ID}
			}
		case errors.Is(err, layout.ErrBadLayout):
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

// errNotYet means that the layout is not stored yet, or not any more.
var errNotYet = errors.New("the layout is not stored")

// layout reads the whole layout of a request.
func (j jobs) layout(ctx context.Context, id uuid.UUID) (*layout.Layout, error) {
	p, err := j.readPlan(ctx, id)
	if err != nil {
		return nil, notYet(err)
	}
	// The last slice is stored last.
	if _, err := j.store.Stat(ctx, cutRef(id, p.Slices-1)); err != nil {
		return nil, notYet(err)
	}
	parts := make([]*layout.Layout, p.Slices)
	for i := range parts {
		if parts[i], err = readLayout(ctx, j.store, cutRef(id, i)); err != nil {
			return nil, notYet(err)
		}
	}
	return layout.Join(parts)
}

func notYet(err error) error {
	if errors.Is(err, blob.ErrMissing) {
		return errNotYet
	}
	return err
}
