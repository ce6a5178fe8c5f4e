package roles

import (
	"context"
	"errors"
	"fmt"
	"image"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/listener"
)

// jobController cuts pictures into slices and composes mosaics from finished slices.
type jobController struct {
	jobs   jobs
	queues *queues
	memory memory
	lanes  *lanes // one picture at a time is decoded whole
	locks  *locks
	stored func(id uuid.UUID, stored, slices int) // receives the progress of a request
}

// plan is the handler of image requests: it cuts the picture, stores the slices and then sends
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
		return err
	})
	if err != nil {
		return c.jobs.gone(ctx, id, err)
	}
	if err := c.jobs.discard(ctx, id); err != nil {
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
	if err := c.jobs.note(ctx, id, factRequested); err != nil {
		return err
	}
	// The slices may have been finished so quickly that the request has ended.
	return c.jobs.discard(ctx, id)
}

// cut stores the slices of the picture. It is idempotent.
func (c *jobController) cut(ctx context.Context, m ImageRequest) (plan, error) {
	img, free, err := decode(ctx, c.jobs.store, m.ImageURI, c.memory, 0)
	if err != nil {
		return plan{}, err
	}
	// Freed before the slices are requested, because image processors need the memory.
	defer free()
	geometry, err := picture.NewPlan(img.Bounds().Dx(), img.Bounds().Dy(), m.TileSize, m.Slices)
	if err != nil {
		return plan{}, dispatcher.Poison(err)
	}
	p := plan{Tile: geometry.Tile, Cols: geometry.Cols, Rows: geometry.Rows, Slices: geometry.Slices, Format: m.OutputFormat}
	if err := c.jobs.writePlan(ctx, m.RequestID, p); err != nil {
		return plan{}, err
	}
	return p, picture.Cut(img, geometry, func(i int) (io.WriteCloser, error) {
		return newUpload(func(r io.Reader) error { return c.jobs.store.Put(ctx, cutRef(m.RequestID, i), r) }), nil
	})
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
	if _, err := c.jobs.store.Size(ctx, m.Body.SliceURI); err != nil {
		return c.jobs.gone(ctx, id, err)
	}
	stored, err := c.jobs.stored(ctx, id)
	if err != nil {
		return err
	}
	c.stored(id, stored, p.Slices)
	if stored < p.Slices {
		// The slice that is stored last has a message that arrives even later.
		return nil
	}
	// The last messages arrive at the same time; one of their handlers does the work.
	unlock, err := c.locks.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	return c.complete(ctx, m, p)
}

// lookBack is discard for a handler that may have lost its lease. It continues for a while after the
// context ended, and retries, because no other step would clean up.
func (c *jobController) lookBack(ctx context.Context, id uuid.UUID) (err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	for range 3 {
		if err = c.jobs.discard(ctx, id); err == nil || errors.Is(err, errDelivered) || errors.Is(err, errEnded) {
			return err
		}
	}
	return err
}

// complete stores the mosaic and sends the image response, each unless that was done before.
func (c *jobController) complete(ctx context.Context, m *listener.Message[SliceResponse], p plan) error {
	id := m.Body.RequestID
	if responded, err := c.jobs.noted(ctx, id, factResponded); err != nil || responded {
		return err
	}
	// If another handler did all this while this one waited for the lock, even the note may have
	// been swept. The end is recorded before the sweep, so it is checked after the note.
	if err := c.jobs.discard(ctx, id); err != nil {
		return err
	}
	err := c.assemble(ctx, id, p)
	// Even if that failed, or the lease is lost: the mosaic may have been stored after the request
	// ended and was swept.
	if err := c.lookBack(ctx, id); err != nil {
		return err
	}
	switch {
	case errors.Is(err, blob.ErrExists):
		// The handler that stored it sends the response, and keeps its message until then. If it
		// was interrupted, this may be the second delivery of that message. On a first delivery
		// the mosaic was stored by another handler, which will respond itself.
		if m.DequeueCount == 1 {
			return nil
		}
	case err != nil:
		return c.jobs.gone(ctx, id, err)
	}
	err = c.queues.imageResponses.Submit(ctx, ImageResponse{
		Head:     c.queues.imageResponses.Head(m.Body.ClientID, id),
		ImageURI: outputRef(id, p.format()),
	})
	if err != nil {
		return err
	}
	if err := c.jobs.note(ctx, id, factResponded); err != nil {
		return err
	}
	return c.jobs.discard(ctx, id)
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
	highest := (p.Rows/p.Slices + 1) * p.Tile // of a slice, in pixels
	free, err := c.memory.take(ctx, int64(geometry.Size().X)*int64(highest)*bytesPerPixel)
	if err != nil {
		return err
	}
	defer free()
	u := newUpload(func(r io.Reader) error { return c.jobs.store.Create(ctx, output, r) })
	err = picture.Compose(u, p.format(), geometry.Size(), p.Slices, func(i int) (io.ReadCloser, error) {
		return c.jobs.store.Open(ctx, laidRef(id, i))
	})
	return u.finish(err)
}

// bytesPerPixel is the size of a pixel of 8 bits a channel, as Go decodes it.
const bytesPerPixel = 4

// decode reads a picture from the store once the memory for it, and extra bytes per pixel, are free. A
// picture that cannot be decoded is poison. The caller calls free when it has finished with the
// picture.
func decode(ctx context.Context, store blob.Store, ref blob.Ref, memory memory, extra int64) (_ image.Image, free func(), err error) {
	var header picture.Header
	err = reading(ctx, store, ref, func(r io.Reader) (err error) {
		header, err = picture.Inspect(r)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	free, err = memory.take(ctx, header.DecodeBytes+extra*int64(header.Width)*int64(header.Height))
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
	if errors.Is(err, picture.ErrNotPicture) || errors.Is(err, picture.ErrDamaged) || errors.Is(err, picture.ErrTooLarge) {
		return dispatcher.Poison(err)
	}
	return err
}
