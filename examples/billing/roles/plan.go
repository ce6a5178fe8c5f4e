package roles

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/billing/shipping"
)

// plan is how a batch is split. It is stored before the first item is sent and never changes, so that an Initiator with other
// options, which goes on where one was killed, makes the same items.
type plan struct {
	Group   int    `json:"group"`   // records of an item
	Items   int    `json:"items"`   // of the batch
	Tariffs string `json:"tariffs"` // their digest
}

func newPlan(m *shipping.Manifest, group int, tariffs string) plan {
	p := plan{Group: group, Tariffs: tariffs}
	for i := range m.Pieces {
		p.Items += items(m.Pieces[i].Records, group)
	}
	return p
}

// before returns the number of the first item of piece n.
func (p *plan) before(m *shipping.Manifest, n int) int {
	first := 0
	for _, piece := range m.Pieces[:n] {
		first += items(piece.Records, p.Group)
	}
	return first
}

func planRef(batch string) blob.Ref {
	return blob.Ref{Container: "billing-plans", Name: batch + ".json"}
}

// fixPlan stores the plan of a batch, unless there is one, and returns the one that counts.
func fixPlan(ctx context.Context, store blob.Store, batch string, p plan) (plan, error) {
	text, err := json.Marshal(p)
	if err != nil {
		return plan{}, err
	}
	err = store.Create(ctx, planRef(batch), bytes.NewReader(text), nil)
	if !errors.Is(err, blob.ErrExists) {
		return p, err
	}
	return readPlan(ctx, store, batch)
}

// readPlan fails with [blob.ErrMissing] if a batch has no plan.
func readPlan(ctx context.Context, store blob.Store, batch string) (plan, error) {
	text, err := readAll(ctx, store, planRef(batch), 1<<10)
	if err != nil {
		return plan{}, fmt.Errorf("read the plan of batch %s: %w", batch, err)
	}
	var p plan
	if err := json.Unmarshal(text, &p); err != nil {
		return plan{}, fmt.Errorf("read the plan of batch %s: %w", batch, err)
	}
	if p.Group < 1 || p.Items < 1 {
		return plan{}, fmt.Errorf("the plan of batch %s has %d items of %d records", batch, p.Items, p.Group)
	}
	return p, nil
}

// readAll reads a blob of at most limit bytes.
func readAll(ctx context.Context, store blob.Store, ref blob.Ref, limit int64) ([]byte, error) {
	r, err := store.Open(ctx, ref)
	if err != nil {
		return nil, err
	}
	return readClosing(r, limit)
}

// readClosing reads at most limit bytes and closes the reader.
func readClosing(r io.ReadCloser, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, err
	}
	if int64(len(text)) > limit {
		return nil, fmt.Errorf("there are more than %d bytes", limit)
	}
	return text, nil
}
