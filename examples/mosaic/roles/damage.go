package roles

import (
	"context"
	"errors"
	"strings"
)

// Damage overwrites what a slice is rendered from, as a faulty disk would: that of the last slice that is not
// stored. Its message becomes poison, unless it was handled already, and the request fails. It reports whether there was such a
// slice. It is for showing what happens then.
func (o *Order) Damage(ctx context.Context) (bool, error) {
	j := o.broker.jobs
	// The layout of a mosaic that is kept is needed, and nothing waits for the slices of one that has ended.
	if e, err := j.ended(ctx, o.ID); err != nil || e != nil {
		return false, err
	}
	p, err := j.readPlan(ctx, o.ID)
	if err != nil {
		return false, notYet(err)
	}
	stored, err := j.stored(ctx, o.ID)
	if err != nil {
		return false, err
	}
	there := make(map[int]bool, len(stored))
	for _, i := range stored {
		there[i] = true
	}
	for i := p.Slices - 1; i >= 0; i-- {
		if there[i] {
			continue
		}
		err := j.store.Put(ctx, cutRef(o.ID, i), strings.NewReader("damaged on purpose"), nil)
		if e := j.lookBack(ctx, o.ID); errors.Is(e, errEnded) {
			return false, nil // and what was overwritten is deleted
		}
		return err == nil, err
	}
	return false, nil
}
