package roles

import (
	"context"
	"errors"
	"fmt"
	"image"
	"io"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/listener"
)

// jobController chooses the tiles of pictures, and composes mosaics from finished slices.
type jobController struct {
	jobs      jobs
	queues    *queues
	memory    memory
	libraries *libraries
	lanes     *lanes                            // one picture at a time is decoded whole
	stored    func(id uuid.UUID, slices ...int) // receives the numbers of slices that are finished
}

// plan is the handler of image requests: it chooses the tiles, stores that in slices and then sends
// a request for each.
func (c *jobController) plan(ctx context.Context, m *listener.Message[ImageRequest]) error {
	id := m.Body.RequestID
	if err := c.jobs.discard(ctx, id); err != nil {
		return err
	}
	if requested, err := c.jobs.noted(ctx, id, factRequested); err != nil || requested {
		return err
	}
	var p plan
	err := c.lanes.do(ctx, id, m.DequeueCount, func() (err error) {
		p, err = c.cut(ctx, m.Body)
		return c.jobs.after(ctx, id, err)
	})
	if err != nil {
		return err
	}
	for i := range p.Slices {
		err := c.queues.sliceRequests.Submit(ctx, SliceRequest{
			Head:            c.queues.sliceRequests.Head(m.Body.ClientID, id),
			ImageLibraryURI: m.Body.ImageLibraryURI,
			SliceURI:        cutRef(id, i), SliceSequence: i, Slices: p.Slices,
			TileSize: p.Tile,
		})
		if err != nil {
			return err
		}
	}
	// The slices may have been finished so quickly that the request has ended.
	return c.jobs.after(ctx, id, c.jobs.note(ctx, id, factRequested))
}

// cut chooses the tiles of the whole picture, and stores the slices. It is idempotent.
func (c *jobController) cut(ctx context.Context, m ImageRequest) (plan, error) {
	library, err := c.libraries.get(ctx, m.ImageLibraryURI)
	if err != nil {
		return plan{}, err
	}
	cells, geometry, err := c.measure(ctx, m)
	if err != nil {
		return plan{}, err
	}
	free, err := c.memory.take(ctx, int64(geometry.Cols)*int64(geometry.Rows)*bytesPerCell)
	if err != nil {
		return plan{}, err
	}
	defer free()
	chosen, err := layout.Choose(ctx, cells, library, m.options())
	if err != nil {
		return plan{}, err
	}
	p := plan{Tile: geometry.Tile, Cols: geometry.Cols, Rows: geometry.Rows, Slices: geometry.Slices, Format: m.OutputFormat}
	if err := c.jobs.writePlan(ctx, m.RequestID, p); err != nil {
		return plan{}, err
	}
	for i := range p.Slices {
		first, end := geometry.SliceRows(i)
		slice := chosen.Window(image.Rect(0, first, p.Cols, end))
		u := newUpload(func(r io.Reader) error { return c.jobs.store.Put(ctx, cutRef(m.RequestID, i), r, nil) })
		if err := u.finish(slice.Write(u)); err != nil {
			return plan{}, err
		}
	}
	return p, nil
}

// bytesPerCell is about how much memory the choice of tiles needs.
const bytesPerCell = 128

// measure decodes the picture of a request and takes its colours. The pixels are freed before the tiles are chosen.
func (c *jobController) measure(ctx context.Context, m ImageRequest) (*layout.Cells, picture.Plan, error) {
	img, free, err := decode(ctx, c.jobs.store, m.ImageURI, c.memory)
	if err != nil {
		return nil, picture.Plan{}, err
	}
	defer free()
	geometry, err := picture.NewPlan(img.Bounds().Dx(), img.Bounds().Dy(), m.TileSize, &picture.PlanOptions{Scale: m.Scale, Slices: m.Slices, Format: m.format()})
	if err != nil {
		return nil, geometry, dispatcher.Poison(err)
	}
	cells, err := layout.Measure(img, geometry.Crop.Add(img.Bounds().Min), geometry.Cols, geometry.Rows)
	if err != nil {
		return nil, geometry, dispatcher.Poison(err)
	}
	return cells, geometry, nil
}

// collect is the handler of slice responses: when all slices of the request are finished, it
// composes the mosaic and sends the image response.
func (c *jobController) collect(ctx context.Context, m *listener.Message[SliceResponse]) error {
	err := c.gather(ctx, m)
	if errors.Is(err, errDelivered) {
		// Another slice's message completed the request while this one was on its way.
		// That is expected and not reported.
		return nil
	}
	return err
}

func (c *jobController) gather(ctx context.Context, m *listener.Message[SliceResponse]) error {
	id := m.Body.RequestID
	if err := c.jobs.discard(ctx, id); err != nil {
		return err
	}
	p, err := c.jobs.readPlan(ctx, id)
	if err != nil {
		return c.jobs.gone(ctx, id, err)
	}
	if m.Body.Slices != p.Slices {
		return dispatcher.Poison(fmt.Errorf("slice %d of %d of a request that has %d", m.Body.SliceSequence, m.Body.Slices, p.Slices))
	}
	if _, err := c.jobs.store.Stat(ctx, m.Body.SliceURI); err != nil {
		return c.jobs.gone(ctx, id, err)
	}
	c.stored(id, m.Body.SliceSequence)
	complete, err := c.jobs.parts.Complete(ctx, id.String(), p.Slices)
	if err != nil || !complete {
		// The slice that is stored last has a message that arrives even later.
		return err
	}
	// The last messages arrive at the same time; one of their handlers does the work.
	_, err = c.jobs.responses.Once(ctx, id.String(), func(ctx context.Context) ([]byte, error) {
		return nil, c.respond(ctx, m, p)
	})
	if errors.Is(err, errElsewhere) {
		return nil
	}
	return c.jobs.after(ctx, id, err)
}

// errElsewhere means that another handler has stored the mosaic and sends the response.
var errElsewhere = errors.New("another handler sends the response")

// respond stores the mosaic and sends the image response.
func (c *jobController) respond(ctx context.Context, m *listener.Message[SliceResponse], p plan) error {
	id := m.Body.RequestID
	// If another handler did all this while this one waited, even the record may have been swept. The end of the
	// request is recorded before the sweep, so it is checked after the record.
	if err := c.jobs.discard(ctx, id); err != nil {
		return err
	}
	err := c.assemble(ctx, id, p)
	// Even if that failed, or the lease is lost: the mosaic may have been stored after the request
	// ended and was swept.
	if err := c.jobs.lookBack(ctx, id); err != nil {
		return err
	}
	switch {
	case errors.Is(err, blob.ErrExists):
		// The handler that stored it sends the response, and keeps its message until then. If it
		// was interrupted, this may be the second delivery of that message. On a first delivery
		// the mosaic was stored by another handler, which will respond itself.
		if m.DequeueCount == 1 {
			return errElsewhere
		}
	case err != nil:
		return err
	}
	return c.queues.imageResponses.Submit(ctx, ImageResponse{
		Head:     c.queues.imageResponses.Head(m.Body.ClientID, id),
		ImageURI: outputRef(id, p.format()),
	})
}

// assemble composes the mosaic from its slices and stores it. It fails with [blob.ErrExists] if it is
// stored already.
func (c *jobController) assemble(ctx context.Context, id uuid.UUID, p plan) error {
	output := outputRef(id, p.format())
	if there, err := blob.Exists(ctx, c.jobs.store, output); err != nil {
		return err
	} else if there {
		return blob.ErrExists
	}
	geometry := p.geometry()
	free, err := c.memory.take(ctx, picture.ComposeBytes(geometry.Size(), p.Slices))
	if err != nil {
		return err
	}
	defer free()
	u := newUpload(func(r io.Reader) error { return c.jobs.store.Create(ctx, output, r, nil) })
	err = picture.Compose(u, p.format(), geometry.Size(), p.Slices, func(i int) (io.ReadCloser, error) {
		return c.jobs.store.Open(ctx, laidRef(id, i))
	})
	return u.finish(err)
}

// bytesPerPixel is the size of a pixel of 8 bits a channel, as Go decodes it.
const bytesPerPixel = 4

// decode reads a picture from the store once the memory for it is free. A
// picture that cannot be decoded is poison. The caller calls free when it has finished with the
// picture.
func decode(ctx context.Context, store blob.Store, ref blob.Ref, memory memory) (_ image.Image, free func(), err error) {
	var header picture.Header
	err = reading(ctx, store, ref, func(r io.Reader) (err error) {
		header, err = picture.Inspect(r)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	free, err = memory.take(ctx, header.DecodeBytes)
	if err != nil {
		return nil, nil, err
	}
	var img image.Image
	err = reading(ctx, store, ref, func(r io.Reader) (err error) {
		img, err = picture.Decode(r)
		return err
	})
	if err != nil {
		free()
		return nil, nil, err
	}
	return img, free, nil
}

// reading opens a picture, calls use and closes it.
func reading(ctx context.Context, store blob.Store, ref blob.Ref, use func(io.Reader) error) error {
	r, err := store.Open(ctx, ref)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // nothing was written
	err = use(r)
	for _, permanent := range []error{picture.ErrNotPicture, picture.ErrUnsupported, picture.ErrDamaged, picture.ErrTooLarge} {
		if errors.Is(err, permanent) {
			return dispatcher.Poison(err)
		}
	}
	return err
}
