package picture

import (
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
)

// Compose writes one picture of the given size in pixels from n slices, top to
// bottom: open opens slice i, a picture as wide as the whole; what it opened is
// closed before the next slice is needed. Only one slice is in memory at a time.
// The heights of the slices must add up to the height of the picture. The first
// error ends the work; what was written to w until then is useless.
func Compose(w io.Writer, f Format, size image.Point, n int, open func(i int) (io.ReadCloser, error)) error {
	if size.X < 1 || size.Y < 1 {
		return fmt.Errorf("composing the picture: it cannot be %d×%d pixels", size.X, size.Y)
	}
	s := &sequence{width: size.X, n: n, open: open}
	if err := encode(w, newStream(image.Rectangle{Max: size}, color.RGBAModel, s.fill), f); err != nil {
		return err
	}
	if s.next < n || s.rows > 0 {
		return fmt.Errorf("composing the picture: its slices are higher than its %d rows of pixels", size.Y)
	}
	return nil
}

// sequence reads rows of pixels from one slice after another.
type sequence struct {
	width, n int
	open     func(i int) (io.ReadCloser, error)

	next  int         // slice to open
	slice image.Image // being read
	y     int         // its next row
	rows  int         // how many are left in it
}

func (s *sequence) fill(y0, y1 int, dst []rgb8) error {
	for need := y1 - y0; need > 0; {
		if s.rows == 0 {
			if err := s.load(); err != nil {
				return err
			}
		}
		take := min(need, s.rows)
		b := s.slice.Bounds()
		readBlock(s.slice, image.Rect(b.Min.X, s.y, b.Max.X, s.y+take), dst[:take*s.width], row8)
		dst = dst[take*s.width:]
		s.y += take
		s.rows -= take
		need -= take
	}
	return nil
}

func (s *sequence) load() (err error) {
	if s.next == s.n {
		return errors.New("composing the picture: its slices are not as high as the picture")
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("composing the picture: slice %d of %d: %w", s.next+1, s.n, err)
			return
		}
		s.next++
	}()
	s.slice = nil // released before the next one is decoded
	r, err := s.open(s.next)
	if err != nil {
		return err
	}
	defer func() {
		if e := r.Close(); err == nil {
			err = e
		}
	}()
	img, err := Decode(r)
	if err != nil {
		return err
	}
	b := img.Bounds()
	if b.Dx() != s.width {
		return fmt.Errorf("it is %d pixels wide and the picture %d", b.Dx(), s.width)
	}
	s.slice, s.y, s.rows = img, b.Min.Y, b.Dy()
	return nil
}
