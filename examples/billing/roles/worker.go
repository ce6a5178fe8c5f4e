package roles

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
)

const (
	// together is how many items a Worker answers for with one message, at most.
	together = 16

	// collecting is how long an item waits for others that have the same answer.
	collecting = 100 * time.Millisecond
)

// Charged is an item whose records were charged.
type Charged struct {
	Batch    string
	Item     int // from 0
	Items    int // of the batch
	Records  int // of the item
	Rejected int // of the records
}

// worker charges the records of items.
type worker struct {
	batches *batches
	tariffs *tariffStore
	results *producer.Producer[Result]
	work    time.Duration // for each item, beside charging it
	charged func(Charged)
}

// charge is the handler of items: it stores a part for each of them, and then says so in one message for each batch.
func (w *worker) charge(ctx context.Context, ms []*listener.Message[WorkItem]) []error {
	errs := make([]error, len(ms))
	stored := make(map[string][]int) // indexes of messages, by batch
	for i, m := range ms {
		if errs[i] = w.store(ctx, &m.Body); errs[i] == nil {
			stored[m.Body.Batch] = append(stored[m.Body.Batch], i)
		}
	}
	for _, batch := range slices.Sorted(maps.Keys(stored)) {
		result := Result{Batch: batch}
		for _, i := range stored[batch] {
			result.Items = ms[i].Body.Items
			result.Stored = append(result.Stored, ms[i].Body.Item)
		}
		if err := w.announce(ctx, result); err != nil {
			for _, i := range stored[batch] {
				errs[i] = err
			}
		}
	}
	return errs
}

// store charges an item and stores its part, unless that is stored.
func (w *worker) store(ctx context.Context, item *WorkItem) error {
	if err := item.check(); err != nil {
		return listener.Poison(err)
	}
	tariffs, err := w.tariffs.get(ctx, item.Tariffs)
	if err != nil {
		return fmt.Errorf("charge item %d of batch %s: %w", item.Item, item.Batch, err)
	}
	p, err := charge(item, tariffs)
	if err != nil {
		return listener.Poison(fmt.Errorf("item %d of batch %s is damaged: %w", item.Item, item.Batch, err))
	}
	if err := w.takeTime(ctx); err != nil {
		return err
	}
	packed, err := partCodec.Encode(p)
	if err != nil {
		return listener.Poison(err)
	}
	if err := w.batches.parts.Put(ctx, item.Batch, item.Item, bytes.NewReader(packed)); err != nil {
		return err
	}
	w.charged(Charged{
		Batch: item.Batch, Item: item.Item, Items: item.Items,
		Records: int(p.Billed) + len(p.Rejected), Rejected: len(p.Rejected),
	})
	return nil
}

// takeTime waits as for a service that takes its time.
func (w *worker) takeTime(ctx context.Context) error {
	if w.work <= 0 {
		return nil
	}
	t := time.NewTimer(w.work)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// announce tells the Controller which parts are stored. If the batch was reported meanwhile, or long ago, nobody needs the
// parts, and nobody else would delete them.
func (w *worker) announce(ctx context.Context, r Result) error {
	_, ended, err := w.batches.ended(ctx, r.Batch)
	switch {
	case err != nil:
		return err
	case ended:
		return w.batches.parts.Sweep(ctx, r.Batch)
	}
	_, err = w.results.Send(ctx, r, &producer.SendOptions{JobID: jobID(r.Batch, r.Stored[0])})
	return err
}
