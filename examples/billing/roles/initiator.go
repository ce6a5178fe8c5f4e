package roles

import (
	"context"
	"fmt"
	"iter"
	"log/slog"

	"github.com/millrace/millrace/examples/billing/records"
	"github.com/millrace/millrace/examples/billing/shipping"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
)

// portion is how many pieces are split between two saves of the progress: what a crash repeats, at one request for each save.
const portion = 10

// initiator splits batches into items.
type initiator struct {
	batches *batches
	tariffs *tariffStore
	items   *producer.Producer[WorkItem]
	current *records.Tariffs // for new batches
	group   int              // for new batches
	logger  *slog.Logger
}

// split is the handler of batches.
func (i *initiator) split(ctx context.Context, m *listener.Message[Batch]) error {
	batch := m.Body.Name
	if err := m.Body.check(); err != nil {
		return listener.Poison(err)
	}
	e, ended, err := i.batches.ended(ctx, batch)
	if err != nil {
		return err
	}
	if ended {
		i.logger.Info("a batch that is reported was sent again, and is not billed again", "batch", batch)
		return i.batches.clean(ctx, batch, e)
	}
	return i.batches.unlessReported(ctx, batch, i.sendAll(ctx, m))
}

// sendAll sends the items of a batch, portion by portion. An item that is sent again is the same.
func (i *initiator) sendAll(ctx context.Context, m *listener.Message[Batch]) error {
	batch := m.Body.Name
	manifest, _, err := shipping.ReadManifest(ctx, i.batches.store, batch)
	if err != nil {
		return err
	}
	tariffs, err := i.tariffs.put(ctx, i.current)
	if err != nil {
		return err
	}
	p, err := fixPlan(ctx, i.batches.store, batch, newPlan(&manifest, i.group, tariffs))
	if err != nil {
		return err
	}
	for m.Body.Done < len(manifest.Pieces) {
		next := min(m.Body.Done+portion, len(manifest.Pieces))
		if err := i.send(ctx, &manifest, &p, m.Body.Done, next); err != nil {
			return err
		}
		if next == len(manifest.Pieces) {
			break
		}
		if err := m.Save(ctx, Batch{Name: batch, Done: next}); err != nil {
			return err
		}
	}
	return nil
}

// send sends the items of the pieces from first to before next.
func (i *initiator) send(ctx context.Context, m *shipping.Manifest, p *plan, first, next int) error {
	var failed error
	_, err := i.items.SendAll(ctx, i.itemsOf(ctx, m, p, first, next, &failed), &producer.SendAllOptions[WorkItem]{
		Concurrency: sends,
		Options: func(_ int, item WorkItem) producer.SendOptions {
			return producer.SendOptions{JobID: jobID(item.Batch, item.Item)}
		},
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		return fmt.Errorf("send the items of batch %s: %w", m.Batch, err)
	}
	return nil
}

// sends is how many items are sent at once.
const sends = 16

// itemsOf returns the items of some pieces, one of which is in memory at a time. It ends early with an error in failed.
func (i *initiator) itemsOf(ctx context.Context, m *shipping.Manifest, p *plan, first, next int, failed *error) iter.Seq[WorkItem] {
	return func(yield func(WorkItem) bool) {
		number := p.before(m, first)
		for n := first; n < next; n++ {
			piece, err := i.piece(ctx, m, n)
			if err != nil {
				*failed = err
				return
			}
			for part := range cut(piece, p.Group) {
				item := WorkItem{Batch: m.Batch, Item: number, Items: p.Items, File: m.FileOf(n), Tariffs: p.Tariffs, Records: part}
				if !yield(item) {
					return
				}
				number++
			}
		}
	}
}

// piece reads a piece. One that is damaged is poison: its records cannot be billed.
func (i *initiator) piece(ctx context.Context, m *shipping.Manifest, n int) (string, error) {
	r, err := shipping.OpenPiece(ctx, i.batches.store, m.Batch, n)
	if err != nil {
		return "", err
	}
	text, err := readClosing(r, shipping.MaxPieceBytes)
	if err != nil {
		return "", fmt.Errorf("read piece %d of batch %s: %w", n, m.Batch, err)
	}
	if digestOf(text) != m.Pieces[n].SHA256 {
		return "", listener.Poison(fmt.Errorf("piece %d of batch %s is damaged: its %d bytes do not have the checksum of the manifest", n, m.Batch, len(text)))
	}
	return string(text), nil
}
