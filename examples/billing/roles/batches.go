package roles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/billing/shipping"
	"github.com/millrace/millrace/gather"
)

// batches is what the roles know of batches, in the store.
type batches struct {
	store blob.Store
	parts *gather.Gather
}

// partsContainer has the parts of the items, and the ends of batches that are reported.
const partsContainer = "billing-parts"

func newBatches(store blob.Store) (*batches, error) {
	g, err := gather.New(store, partsContainer, nil)
	if err != nil {
		return nil, err
	}
	return &batches{store, g}, nil
}

// end is what stays of a batch that is reported.
type end struct {
	Pieces   int   `json:"pieces"`
	Items    int   `json:"items"`
	Records  int64 `json:"records"` // the rejected ones too
	Rejected int64 `json:"rejected"`
}

// ended returns false if a batch is not reported.
func (b *batches) ended(ctx context.Context, batch string) (end, bool, error) {
	found, ok, err := b.parts.End(ctx, batch)
	if err != nil || !ok {
		return end{}, false, err
	}
	e, err := parseEnd(batch, found)
	return e, err == nil, err
}

func parseEnd(batch string, found gather.End) (e end, err error) {
	if err := json.Unmarshal(found.Result, &e); err != nil {
		return end{}, fmt.Errorf("read the end of batch %s: %w", batch, err)
	}
	return e, nil
}

// clean deletes what is not needed of a batch that is reported. It can be repeated.
func (b *batches) clean(ctx context.Context, batch string, e end) error {
	if err := shipping.Delete(ctx, b.store, batch, e.Pieces); err != nil {
		return err
	}
	if err := b.store.Delete(ctx, planRef(batch)); err != nil {
		return fmt.Errorf("delete the plan of batch %s: %w", batch, err)
	}
	return b.parts.Sweep(ctx, batch)
}

// unlessReported returns err, or nil if err says that something is missing because the batch was reported meanwhile, by
// another process that had the same message. What this one has stored since is deleted.
func (b *batches) unlessReported(ctx context.Context, batch string, err error) error {
	if !errors.Is(err, blob.ErrMissing) {
		return err
	}
	e, ended, endErr := b.ended(ctx, batch)
	switch {
	case endErr != nil:
		return errors.Join(err, endErr)
	case ended:
		return b.clean(ctx, batch, e)
	}
	return err
}
