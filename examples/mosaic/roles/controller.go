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
	libraries *libraries
	composing chan struct{} // held while a mosaic is composed
	handled   func(Step)
}

// plan is the handler of image requests: it chooses the tiles, stores them in slices, and then sends
// a request for each slice.
func (c *jobController) plan(ctx context.Context, m *listener.Message[ImageRequest]) error {
	id := m.Body.RequestID
	if err := c.jobs.continues(ctx, id); err != nil {
		return err
	}
	if requested, err := blob.Exists(ctx, c.jobs.store, stateRef(id, factRequested)); err != nil || requested {
		return err
	}
	p, err := c.cut(ctx, m.Body)
	if err := c.jobs.after(ctx, id, err); err != nil {
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
	if err := c.jobs.after(ctx, id, c.jobs.writeFact(ctx, id, factRequested, true)); err != nil {
		return err
	}
	c.handled(Step{Role: Controller, Request: id, Slices: p.Slices})
	return nil
}

// cut chooses the tiles of the whole picture, and stores the slices. It is idempotent.
func (c *jobController) cut(ctx context.Context, m ImageRequest) (p picture.Plan, err error) {
	library, err := c.libraries.get(ctx, m.ImageLibraryURI)
	if err != nil {
		return p, err
	}
	cells, p, err := c.measure(ctx, m)
	if err != nil {
		return p, err
	}
	chosen, err := layout.Choose(ctx, cells, library, m.options())
	if err != nil {
		return p, err
	}
	for i := range p.Slices {
		if err := c.jobs.writeSlice(ctx, m.RequestID, chosen, p, i); err != nil {
			return p, err
		}
	}
	err = write(chosen.Write, func(r io.Reader) error { return c.jobs.store.Put(ctx, stateRef(m.RequestID, factLayout), r, nil) })
	if err != nil {
		return p, err
	}
	return p, c.jobs.writeFact(ctx, m.RequestID, factPlan, p)
}

// measure decodes the picture of a request and takes its colours. The pixels are freed before the tiles are chosen.
func (c *jobController) measure(ctx context.Context, m ImageRequest) (*layout.Cells, picture.Plan, error) {
	var img image.Image
	err := c.jobs.read(ctx, m.ImageURI, func(r io.Reader) (err error) {
		img, err = picture.Decode(r)
		return err
	})
	for _, permanent := range []error{picture.ErrNotPicture, picture.ErrUnsupported, picture.ErrDamaged, picture.ErrTooLarge} {
		if errors.Is(err, permanent) {
			err = dispatcher.Poison(err)
		}
	}
	if err != nil {
		return nil, picture.Plan{}, err
	}
	geometry, err := picture.NewPlan(img.Bounds().Dx(), img.Bounds().Dy(), m.TileSize, picture.PlanOptions{Scale: m.Scale, Slices: m.Slices})
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
	id := m.Body.RequestID
	if err := c.jobs.continues(ctx, id); err != nil {
		return err
	}
	var p picture.Plan
	if err := c.jobs.readFact(ctx, id, factPlan, &p); err != nil {
		return c.jobs.after(ctx, id, err)
	}
	if m.Body.Slices != p.Slices {
		return dispatcher.Poison(fmt.Errorf("slice %d of %d of a request that has %d", m.Body.SliceSequence, m.Body.Slices, p.Slices))
	}
	if _, err := c.jobs.store.Stat(ctx, m.Body.SliceURI); err != nil {
		return c.jobs.after(ctx, id, err)
	}
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
func (c *jobController) respond(ctx context.Context, m *listener.Message[SliceResponse], p picture.Plan) error {
	id := m.Body.RequestID
	// If another handler did all this while this one waited, even the record may have been swept. The end of the
	// request is recorded before the sweep, so it is checked after the record.
	if err := c.jobs.continues(ctx, id); err != nil {
		return err
	}
	err := c.assemble(ctx, id, p)
	if ended := c.jobs.after(ctx, id, nil); ended != nil {
		return ended // the mosaic may have been stored after the sweep
	}
	if errors.Is(err, blob.ErrExists) && m.DequeueCount == 1 {
		// The handler that stored it sends the response, and keeps its message until then. If it was
		// interrupted, that message is delivered again, and its count is higher.
		return errElsewhere
	}
	if err != nil && !errors.Is(err, blob.ErrExists) {
		return err
	}
	return c.queues.imageResponses.Submit(ctx, ImageResponse{
		Head:     c.queues.imageResponses.Head(m.Body.ClientID, id),
		ImageURI: outputRef(id),
	})
}

// assemble composes the mosaic from its slices and stores it. It fails with [blob.ErrExists] if it is
// stored already.
func (c *jobController) assemble(ctx context.Context, id uuid.UUID, p picture.Plan) error {
	output := outputRef(id)
	if there, err := blob.Exists(ctx, c.jobs.store, output); err != nil {
		return err
	} else if there {
		return blob.ErrExists
	}
	// One mosaic at a time is composed, because of the memory.
	select {
	case c.composing <- struct{}{}:
		defer func() { <-c.composing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return write(func(w io.Writer) error {
		return picture.Compose(w, p.Size(), p.Slices, func(i int) (io.ReadCloser, error) {
			return c.jobs.store.Open(ctx, laidRef(id, i))
		})
	}, func(r io.Reader) error { return c.jobs.store.Create(ctx, output, r, nil) })
}
