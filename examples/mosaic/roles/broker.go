package roles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/tiles"
	"github.com/millrace/millrace/listener"
)

// Broker is the client interface: it submits requests for mosaics and delivers the results. The
// Broker of a [System] is safe for concurrent use.
type Broker struct {
	jobs   jobs
	queues *queues
	shared *shared
}

// Request describes the mosaic that a client wants.
type Request struct {
	ClientID string         // name of the client
	Picture  io.Reader      // as picture.Decode reads it, read once
	Library  *tiles.Library // of tiles; its Size is the size of a cell
	Scale    float64        // of the mosaic, times the picture; 0 means 1
	Slices   int            // 1 … rows of cells, as picture.NewPlan plans them
	Tint     int            // how much of the picture's own colours is mixed in, in per cent: 0 … layout.MaxTint
	Reuse    int            // how freely tiles are used again, in per cent: 0 … 100
}

// Order is a submitted request. All that it knows is in the store, so any process may wait for it and
// deliver it: see [Broker.Resume].
type Order struct {
	ID     uuid.UUID
	Slices int

	broker *Broker
	before int64 // messages that this process had sent
}

// Submit stores the library and the picture and requests the mosaic. The roles of this process
// or of others make it.
func (b *Broker) Submit(ctx context.Context, r Request) (*Order, error) {
	o := b.Resume(uuid.New(), r.Slices)
	library := libraryRef(r.Library.ID())
	err := write(r.Library.Write, func(stream io.Reader) error { return b.jobs.store.Create(ctx, library, stream, nil) })
	if err != nil && !errors.Is(err, blob.ErrExists) {
		return nil, err
	}
	if err := b.jobs.store.Put(ctx, inputRef(o.ID), r.Picture, nil); err != nil {
		return nil, err
	}
	return o, b.queues.imageRequests.Submit(ctx, ImageRequest{
		Head:     b.queues.imageRequests.Head(r.ClientID, o.ID),
		ImageURI: inputRef(o.ID), ImageLibraryURI: library,
		TileSize: r.Library.Size(), Slices: r.Slices,
		Scale: cmp.Or(r.Scale, 1), Tint: r.Tint, Reuse: r.Reuse,
	})
}

// Resume returns the order of a request that was submitted earlier, perhaps by another process.
func (b *Broker) Resume(id uuid.UUID, slices int) *Order {
	return &Order{ID: id, Slices: slices, broker: b, before: b.shared.sent.Load()}
}

// complete is the handler of image responses: it records where the mosaic is. The process that waits for the
// mosaic sees the record in the store.
func (b *Broker) complete(ctx context.Context, m *listener.Message[ImageResponse]) error {
	id := m.Body.RequestID
	if err := b.jobs.continues(ctx, id); err != nil {
		return err
	}
	if _, err := b.jobs.store.Stat(ctx, m.Body.ImageURI); err != nil {
		return b.jobs.after(ctx, id, err)
	}
	e, err := b.jobs.finish(ctx, id, end{Output: m.Body.ImageURI.String()})
	if err != nil {
		return err
	}
	return b.jobs.sweep(ctx, id, e.Output != "")
}

// Times of Wait.
const (
	lookInterval = 250 * time.Millisecond

	// outage is how long the blob store may fail.
	outage = 30 * time.Second
)

// Wait returns when the mosaic can be delivered, or cannot be made any more. It calls progress with each look at the
// store, and returns its error.
func (o *Order) Wait(ctx context.Context, progress func(Progress) error) error {
	for answered := time.Now(); ; {
		e, p, err := o.look(ctx)
		switch {
		case err != nil && (errors.Is(err, blob.ErrMissing) || time.Since(answered) > outage):
			return fmt.Errorf("wait for the mosaic of request %v: %w", o.ID, err)
		case err == nil && e != nil && e.Failed != "":
			return errors.New(e.Failed)
		case err == nil && e != nil && e.Output == "":
			return fmt.Errorf("the mosaic of request %v was already delivered: %w", o.ID, blob.ErrMissing)
		case err == nil && e != nil:
			return nil
		case err == nil:
			answered = time.Now()
			if err := progress(p); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(lookInterval):
		}
	}
}

// look reads the progress of the request, and its end if it has ended. The end is read last, because slices are deleted after
// it.
func (o *Order) look(ctx context.Context) (*end, Progress, error) {
	p, err := o.broker.jobs.progress(ctx, o.ID, o.Slices)
	e, errEnd := o.broker.jobs.ended(ctx, o.ID)
	if e != nil || errEnd != nil {
		return e, p, errEnd
	}
	return nil, p, err
}

// Layout returns the layout of the whole mosaic. It can be read from the first finished slice until
// the mosaic is delivered.
func (o *Order) Layout(ctx context.Context) (*layout.Layout, error) {
	return o.broker.jobs.readLayout(ctx, stateRef(o.ID, factLayout))
}

// Deliver passes the mosaic to deliver, and then deletes the blobs of the request. If deliver
// fails, the mosaic stays.
func (o *Order) Deliver(ctx context.Context, deliver func(mosaic io.Reader) error) error {
	j := o.broker.jobs
	e, err := j.ended(ctx, o.ID)
	if err != nil {
		return err
	}
	if e == nil || e.Output == "" {
		return fmt.Errorf("deliver the mosaic of request %v: %w", o.ID, blob.ErrMissing)
	}
	output, err := blob.Parse(e.Output)
	if err != nil {
		return err
	}
	r, err := j.store.Open(ctx, output)
	if err != nil {
		return err
	}
	err = deliver(r)
	_ = r.Close() // nothing was written
	if err != nil {
		return fmt.Errorf("deliver the mosaic of request %v: %w", o.ID, err)
	}
	if err := o.drop(ctx); err != nil {
		o.broker.shared.logger.Warn("the mosaic was delivered, but not deleted from the store", "request", o.ID, "error", err)
	}
	return nil
}

// drop records that the mosaic is no longer needed, and deletes it.
func (o *Order) drop(ctx context.Context) error {
	j := o.broker.jobs
	return persist(ctx, func() error {
		if err := j.store.Put(ctx, endRef(o.ID), strings.NewReader("{}"), nil); err != nil {
			return err
		}
		return j.sweep(ctx, o.ID, false)
	})
}

// Cancel ends the request without a mosaic, and deletes its blobs. Handlers drop its remaining messages. It may be
// repeated.
func (o *Order) Cancel(ctx context.Context, reason string) error {
	e, err := o.broker.jobs.finish(ctx, o.ID, end{Failed: reason})
	if err != nil {
		return err
	}
	if e.Output != "" {
		return o.drop(ctx)
	}
	return o.broker.jobs.sweep(ctx, o.ID, false)
}

// Sent returns how many messages this process has sent since the order was made.
func (o *Order) Sent() int { return int(o.broker.shared.sent.Load() - o.before) }

// Damage overwrites the last slice that is not finished, as a faulty disk would. Its message becomes poison.
// It reports whether there was such a slice. It is for demonstrations.
func (o *Order) Damage(ctx context.Context) (bool, error) {
	e, p, err := o.look(ctx)
	if err != nil || e != nil || !p.Requested {
		return false, err
	}
	last := p.Slices - 1
	for slices.Contains(p.Stored, last) {
		last--
	}
	if last < 0 {
		return false, nil
	}
	err = o.broker.jobs.store.Put(ctx, cutRef(o.ID, last), strings.NewReader("damaged on purpose"), nil)
	err = o.broker.jobs.after(ctx, o.ID, err)
	if errors.Is(err, errEnded) {
		return false, nil
	}
	return err == nil, err
}
