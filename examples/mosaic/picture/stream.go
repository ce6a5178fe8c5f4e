package picture

import (
	"image"
	"image/color"
	"io"
)

// stream is an image that exists only a few rows at a time. The encoders of the
// standard library read a picture once, from top to bottom (image/jpeg in
// blocks of 16×16), so it is enough to produce each window of rows when its
// first pixel is asked for. P is the pixel, C its pointer as a color.Color.
type stream[P pixel, C interface {
	*P
	color.Color
}] struct {
	bounds image.Rectangle
	model  color.Model
	fill   func(y0, y1 int, dst []P) error // produces rows y0 to y1

	window []P
	y0, y1 int // the rows in the window
	height int // of a full window
	err    error
}

// windowPixels keeps a window around 3 MB, and above 16 rows of the widest JPEG.
const windowPixels = 1 << 20

func newStream[P pixel, C interface {
	*P
	color.Color
}](bounds image.Rectangle, model color.Model, fill func(y0, y1 int, dst []P) error) *stream[P, C] {
	rows := min(max(windowPixels/bounds.Dx(), 1), 64)
	if rows > 16 {
		rows -= rows % 16 // so that no block of a JPEG lies across two windows
	}
	return &stream[P, C]{
		bounds: bounds,
		model:  model,
		fill:   fill,
		window: make([]P, min(rows, bounds.Dy())*bounds.Dx()),
		y0:     bounds.Min.Y,
		y1:     bounds.Min.Y,
		height: rows,
	}
}

func (s *stream[P, C]) Bounds() image.Rectangle { return s.bounds }
func (s *stream[P, C]) ColorModel() color.Model { return s.model }

// Opaque keeps image/png from reading the picture twice to find out.
func (s *stream[P, C]) Opaque() bool { return true }

func (s *stream[P, C]) At(x, y int) color.Color {
	for y >= s.y1 {
		s.advance()
	}
	return C(&s.window[(y-s.y0)*s.bounds.Dx()+x-s.bounds.Min.X])
}

func (s *stream[P, C]) advance() {
	s.y0 = s.y1
	s.y1 = min(s.y0+s.height, s.bounds.Max.Y)
	if s.err == nil {
		s.err = s.fill(s.y0, s.y1, s.window[:(s.y1-s.y0)*s.bounds.Dx()])
	}
}

// failure is the first error of fill.
func (s *stream[P, C]) failure() error { return s.err }

// stopper fails every write once the stream that feeds the encoder has failed,
// because an image cannot return errors.
type stopper struct {
	w       io.Writer
	failure func() error
}

func (s stopper) Write(p []byte) (int, error) {
	if err := s.failure(); err != nil {
		return 0, err
	}
	return s.w.Write(p)
}
