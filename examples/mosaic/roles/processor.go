package roles

import (
	"context"
	"errors"
	"fmt"
	"io"

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
	memory    memory
	lanes     *lanes
	libraries *libraries
}

// process is the handler of slice requests.
func (p *imageProcessor) process(ctx context.Context, m *listener.Message[SliceRequest]) error {
	id := m.Body.RequestID
	if err := p.jobs.discard(ctx, id); err != nil {
		return err
	}
	laid := laidRef(id, m.Body.SliceSequence)
	switch there, err := blob.Exists(ctx, p.jobs.store, laid); {
	case err != nil:
		return err
	case !there: // otherwise this is a duplicate, or the response was not sent
		err := p.lanes.do(ctx, id, m.DequeueCount, func() error { return p.jobs.after(ctx, id, p.lay(ctx, m.Body)) })
		if err != nil {
			return err
		}
	}
	return p.queues.sliceResponses.Submit(ctx, SliceResponse{
		Head:     p.queues.sliceResponses.Head(m.Body.ClientID, id),
		SliceURI: laid, SliceSequence: m.Body.SliceSequence, Slices: m.Body.Slices,
	})
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
	slice, err := readLayout(ctx, p.jobs.store, m.SliceURI)
	if err != nil {
		return err
	}
	pixels := int64(slice.Cells.Cols) * int64(slice.Cells.Rows) * int64(m.TileSize*m.TileSize)
	free, err := p.memory.take(ctx, pixels*bytesPerPixel)
	if err != nil {
		return err
	}
	defer free()
	u := newUpload(func(r io.Reader) error { return p.jobs.parts.Put(ctx, m.RequestID.String(), m.SliceSequence, r) })
	return u.finish(writeSlice(u, slice, library))
}

// writeSlice lays the tiles of a slice and writes them as a PNG.
func writeSlice(w io.Writer, slice *layout.Layout, library *tiles.Library) error {
	laid, err := slice.Lay(library)
	if err != nil {
		return dispatcher.Poison(err)
	}
	return picture.Encode(w, laid, laid.Rect, picture.PNG)
}

// readLayout reads a slice of a layout. An invalid one is poison.
func readLayout(ctx context.Context, store blob.Store, ref blob.Ref) (*layout.Layout, error) {
	r, err := store.Open(ctx, ref)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }() // nothing was written
	l, err := layout.Read(r)
	if errors.Is(err, layout.ErrBadLayout) {
		return nil, dispatcher.Poison(err)
	}
	return l, err
}
