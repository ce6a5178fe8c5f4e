package web

import (
	"bytes"
	"context"
	"image"
	"image/jpeg"
	"io"
	"net/http"
	"strings"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

const (
	// maxPreview is the longest side of the previews of a picture and of slices.
	maxPreview = 2048

	// previewQuality is that of the JPEGs of the page.
	previewQuality = 85

	// mosaicSlices is how many slices a mosaic has at least, if it has so many rows: enough to see it grow.
	mosaicSlices = 24
)

// inspect decodes an uploaded picture, so that a broken one is refused at once, and makes its preview. One picture at a time is
// decoded here, and none beside the roles that there is no memory for, because a large one takes hundreds of megabytes.
func (s *Server) inspect(ctx context.Context, o *order) (preview []byte, h picture.Header, err error) {
	free, err := take(ctx, s.decoding)
	if err != nil {
		return nil, h, err
	}
	defer free()
	err = s.reading(o, func(f io.Reader) (err error) {
		h, err = picture.Inspect(f)
		return err
	})
	if err != nil {
		return nil, h, err
	}
	if h.Width*h.Height > s.limits.Pixels {
		return nil, h, refuse(http.StatusRequestEntityTooLarge, "“%s” has %d×%d pixels, and the limit is %s: make it smaller first", o.name, h.Width, h.Height, countText(s.limits.Pixels))
	}
	freeMemory, err := s.options.System.Reserve(ctx, h.DecodeBytes)
	if err != nil {
		return nil, h, err
	}
	defer freeMemory()
	var img image.Image
	err = s.reading(o, func(f io.Reader) (err error) {
		img, err = picture.Decode(f)
		return err
	})
	if err != nil {
		return nil, h, err
	}
	h.Width, h.Height = img.Bounds().Dx(), img.Bounds().Dy()
	small, err := fit(img, maxPreview)
	if err != nil {
		return nil, h, err
	}
	preview, err = encodeJPEG(small)
	return preview, h, err
}

// reading opens an uploaded picture, calls use and closes it. Errors about the picture are for the user.
func (s *Server) reading(o *order, use func(io.Reader) error) error {
	f, err := s.root.Open(o.picture)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // nothing was written
	err = use(f)
	return unusable(o.name, err)
}

// fit returns a picture scaled down so that no side is longer than most, or as it is if none is.
func fit(img image.Image, most int) (image.Image, error) {
	b := img.Bounds()
	longest := max(b.Dx(), b.Dy())
	if longest <= most {
		return img, nil
	}
	return picture.Fit(picture.OverWhite(img), most), nil
}

func encodeJPEG(img image.Image) ([]byte, error) {
	var b bytes.Buffer
	if opaque, ok := img.(interface{ Opaque() bool }); !ok || !opaque.Opaque() {
		img = picture.OverWhite(img)
	}
	err := jpeg.Encode(&b, img, &jpeg.Options{Quality: previewQuality})
	return b.Bytes(), err
}

// sample stores the built-in picture as if it had been uploaded.
func (s *Server) sample(o *order) error {
	o.name = "Built-in picture"
	r, w := io.Pipe()
	go func() {
		img := picture.Sample()
		_ = w.CloseWithError(picture.Encode(w, img, img.Bounds(), picture.PNG)) // never fails
	}()
	name, _, err := s.receive(r, s.limits.Upload)
	_ = r.Close() // ends the goroutine if the file failed
	if err == nil {
		o.picture = name
	}
	return err
}

// plan returns how a picture is divided, or why it cannot be.
func (s *Server) plan(width, height int, o settings) (picture.Plan, error) {
	p, err := picture.NewPlan(width, height, o.Tile, &picture.PlanOptions{Scale: o.Scale})
	if err != nil {
		return p, refuse(http.StatusUnprocessableEntity, "the picture cannot be divided into tiles: %s", strings.TrimPrefix(err.Error(), "dividing the picture: "))
	}
	if size := p.Size(); size.X > s.limits.Output/size.Y {
		return p, refuse(http.StatusUnprocessableEntity, "the mosaic would have %d×%d pixels, and the limit is %s: choose a smaller scale", size.X, size.Y, countText(s.limits.Output))
	}
	p.Slices = min(max(p.Slices, mosaicSlices), p.Rows)
	return p, nil
}
