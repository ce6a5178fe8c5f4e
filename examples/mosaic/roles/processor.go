package roles

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/examples/mosaic/picture"
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
		err := p.lanes.do(ctx, id, m.DequeueCount, func() error { return p.lay(ctx, m.Body, laid) })
		if err != nil {
			return p.jobs.gone(ctx, id, err)
		}
		if err := p.jobs.discard(ctx, id); err != nil {
			return err
		}
	}
	return p.queues.sliceResponses.Submit(ctx, SliceResponse{
		Head:     p.queues.sliceResponses.Head(m.Body.ClientID, id),
		SliceURI: laid, SliceSequence: m.Body.SliceSequence, Slices: m.Body.Slices,
	})
}

// lay renders one slice and stores it.
func (p *imageProcessor) lay(ctx context.Context, m SliceRequest, laid blob.Ref) error {
	library, err := p.libraries.get(ctx, m.ImageLibraryURI)
	if err != nil {
		return err
	}
	if library.Size() != m.TileSize {
		return dispatcher.Poison(fmt.Errorf("the library has tiles of %d pixels and the slice asks for %d", library.Size(), m.TileSize))
	}
	img, free, err := decode(ctx, p.jobs.store, m.SliceURI, p.memory, bytesPerPixel)
	if err != nil {
		return err
	}
	defer free()
	grid, err := picture.Cells(img, img.Bounds(), m.TileSize)
	if err != nil {
		return dispatcher.Poison(err)
	}
	mosaic, err := library.Render(grid)
	if err != nil {
		return dispatcher.Poison(err)
	}
	u := newUpload(func(r io.Reader) error { return p.jobs.store.Create(ctx, laid, r) })
	err = u.finish(picture.Encode(u, mosaic, mosaic.Bounds(), picture.PNG))
	if errors.Is(err, blob.ErrExists) {
		return nil // another handler has just stored the same
	}
	return err
}
