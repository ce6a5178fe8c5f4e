package roles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/tiles"
	"github.com/millrace/millrace/listener"
)

// imageProcessor renders slices with the tiles of a library.
type imageProcessor struct {
	jobs      jobs
	queues    *queues
	libraries *libraries
	handled   func(Step)
	slow      time.Duration // how much longer each slice takes, for demonstrations
}

func (p *imageProcessor) process(ctx context.Context, m *listener.Message[SliceRequest]) error {
	id := m.Body.RequestID
	if err := p.jobs.continues(ctx, id); err != nil {
		return err
	}
	laid := laidRef(id, m.Body.SliceSequence)
	switch there, err := blob.Exists(ctx, p.jobs.store, laid); {
	case err != nil:
		return err
	case !there: // otherwise this is a duplicate, or the response was not sent
		if err := p.jobs.after(ctx, id, p.lay(ctx, m.Body)); err != nil {
			return err
		}
	}
	err := p.queues.sliceResponses.Submit(ctx, SliceResponse{
		Head:     p.queues.sliceResponses.Head(m.Body.ClientID, id),
		SliceURI: laid, SliceSequence: m.Body.SliceSequence, Slices: m.Body.Slices,
	})
	if err == nil {
		p.handled(Step{Role: Processor, Request: id, Slice: m.Body.SliceSequence, Slices: m.Body.Slices})
	}
	return err
}

// lay renders one slice and stores it.
func (p *imageProcessor) lay(ctx context.Context, m SliceRequest) error {
	library, err := p.libraries.get(ctx, m.ImageLibraryURI)
	if err != nil {
		return err
	}
	if library.Size() != m.TileSize {
		return dispatcher.Poison(fmt.Errorf("the library has tiles of %d pixels and the slice asks for %d", library.Size(), m.TileSize))
	}
	slice, err := p.jobs.readLayout(ctx, m.SliceURI)
	if errors.Is(err, layout.ErrBadLayout) {
		return p.repair(ctx, m, err)
	}
	if err != nil {
		return err
	}
	if p.slow > 0 {
		select {
		case <-time.After(p.slow):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return write(func(w io.Writer) error { return writeSlice(w, slice, library) },
		func(r io.Reader) error { return p.jobs.parts.Put(ctx, m.RequestID.String(), m.SliceSequence, r) })
}

// repair cuts a damaged slice again from the layout of the whole mosaic. Damage is a sign of a fault that
// somebody should look at, so the message is poison all the same. A redrive then renders the slice.
func (p *imageProcessor) repair(ctx context.Context, m SliceRequest, damage error) error {
	whole, err := p.jobs.readLayout(ctx, stateRef(m.RequestID, factLayout))
	var cut picture.Plan
	if err == nil {
		err = p.jobs.readFact(ctx, m.RequestID, factPlan, &cut)
	}
	if err == nil {
		err = p.jobs.writeSlice(ctx, m.RequestID, whole, cut, m.SliceSequence)
	}
	if err != nil {
		return errors.Join(damage, err)
	}
	return dispatcher.Poison(fmt.Errorf("slice %d was damaged in the store and has been cut again; redrive %s to render it: %w",
		m.SliceSequence+1, sliceRequests, damage))
}

// writeSlice lays the tiles of a slice and writes them as a PNG.
func writeSlice(w io.Writer, slice *layout.Layout, library *tiles.Library) error {
	laid, err := slice.Lay(library)
	if err != nil {
		return dispatcher.Poison(err)
	}
	return picture.Encode(w, laid)
}
