package roles

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/millrace/millrace/claimcheck"
	"github.com/millrace/millrace/examples/billing/books"
	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/shipping"
	"github.com/millrace/millrace/examples/billing/totals"
	"github.com/millrace/millrace/listener"
)

// Books record batches, as [books.Books] do.
type Books interface {
	// Record records a batch in one transaction, unless a batch of its name is recorded, and returns whether it did. An error
	// that is no [books.ErrInvalid] may pass.
	Record(ctx context.Context, b *books.Batch, sums *totals.Totals, rejected []records.Rejection) (first bool, err error)
}

// controller adds up the parts of batches and records them in the books.
type controller struct {
	batches  *batches
	books    Books
	claims   *claimcheck.Claims
	turn     chan struct{} // held while a batch is in memory
	reported func(books.Batch)
	rejected func(batch string, uncharged []records.Rejection)
	logger   *slog.Logger
}

// collect is the handler of results: with the last one of a batch it reports the batch.
func (c *controller) collect(ctx context.Context, m *listener.Message[Result]) error {
	if err := m.Body.check(); err != nil {
		return listener.Poison(err)
	}
	batch := m.Body.Batch
	complete, err := c.batches.parts.Complete(ctx, batch, m.Body.Items)
	if err != nil || !complete {
		return err
	}
	ran, reported := false, books.Batch{}
	found, err := c.batches.parts.Once(ctx, batch, func(ctx context.Context) (result []byte, err error) {
		reported, result, err = c.report(ctx, m.Body)
		ran = err == nil
		return result, err
	})
	if err != nil {
		return err
	}
	// Of several that ran, one is told that it was first, or none if the store's answer was lost.
	if ran {
		c.logger.Info("a batch is reported", "batch", batch, "records", reported.Records, "rejected", reported.Rejected,
			"after", reported.Reported.Sub(reported.HandedOver).Round(time.Millisecond))
		c.reported(reported)
	} else if m.DequeueCount == 1 {
		return nil // whoever ran cleans up, and keeps its message until then
	}
	e, err := parseEnd(batch, found)
	if err != nil {
		return err
	}
	if err := c.batches.clean(ctx, batch, e); err != nil {
		return err
	}
	_, err = c.claims.Sweep(ctx) // of bodies whose items were charged weeks ago
	return err
}

// report adds up a batch and records it, one batch at a time.
func (c *controller) report(ctx context.Context, r Result) (books.Batch, []byte, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return books.Batch{}, nil, context.Cause(ctx)
	}
	manifest, handedOver, err := shipping.ReadManifest(ctx, c.batches.store, r.Batch)
	if err != nil {
		return books.Batch{}, nil, err
	}
	if err := c.check(ctx, r); err != nil {
		return books.Batch{}, nil, err
	}
	all, err := merge(ctx, c.batches.parts, r.Batch, r.Items)
	if err != nil {
		return books.Batch{}, nil, err
	}
	if got, want := all.Billed+int64(len(all.Rejected)), int64(manifest.Records()); got != want {
		return books.Batch{}, nil, listener.Poison(fmt.Errorf("the parts of batch %s have %d records, its pieces %d", r.Batch, got, want))
	}
	rejected := allRejected(&manifest, all.Rejected)
	b := books.Batch{
		Name: r.Batch, File: manifest.File, Items: int64(r.Items), HandedOver: handedOver,
		Records: all.Billed + int64(len(rejected)), Rejected: int64(len(rejected)),
	}
	_, err = c.books.Record(ctx, &b, all.Totals, rejected)
	if errors.Is(err, books.ErrInvalid) {
		err = listener.Poison(err)
	}
	if err != nil {
		return books.Batch{}, nil, err
	}
	if len(all.Rejected) > 0 {
		c.rejected(r.Batch, all.Rejected)
	}
	b.Reported = time.Now()
	result, err := json.Marshal(end{Pieces: len(manifest.Pieces), Items: r.Items, Records: b.Records, Rejected: b.Rejected})
	return b, result, err
}

// check fails unless the batch has as many items as the result says.
func (c *controller) check(ctx context.Context, r Result) error {
	p, err := readPlan(ctx, c.batches.store, r.Batch)
	if err == nil && p.Items != r.Items {
		err = listener.Poison(fmt.Errorf("batch %s has %d items, not %d", r.Batch, p.Items, r.Items))
	}
	return err
}

// allRejected returns the lines that were rejected before the batch was shipped, and those whose records could not be charged.
func allRejected(m *shipping.Manifest, uncharged []records.Rejection) []records.Rejection {
	all := slices.Concat(m.Rejected, uncharged)
	if m.MoreRejected > 0 {
		all = append(all, records.Rejection{File: m.File, Reason: fmt.Sprintf("%d more lines were rejected, too many to list", m.MoreRejected)})
	}
	return all
}
