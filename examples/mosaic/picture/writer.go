package picture

import (
	"fmt"
	"image"
	"io"
)

// Writer writes a picture row by row, so that it need not be in memory whole. Make one with [NewWriter]. It is not safe for
// concurrent use, although it encodes a JPEG on all processors.
type Writer struct {
	size image.Point
	next int // row
	rows rowWriter
	err  error // the first one
}

// rowWriter writes rows in one format.
type rowWriter interface {
	write(rows *image.RGBA) error
	close() error
}

// NewWriter begins a picture of the given size in pixels. A PNG has 8 bits a channel; one of a slice can be composed with others by
// [Compose]. A JPEG is refused if a side exceeds the 65,535 pixels its header can hold. Nothing is written to w before the first row.
func NewWriter(w io.Writer, size image.Point, f Format) (*Writer, error) {
	p := &Writer{size: size}
	switch {
	case size.X < 1 || size.Y < 1 || size.X > MaxOutputSide || size.Y > MaxOutputSide:
		return nil, fmt.Errorf("writing the picture: it cannot be %d×%d pixels", size.X, size.Y)
	case f == PNG:
		p.rows = newPNGWriter(w, size)
	case f != JPEG:
		return nil, fmt.Errorf("writing the picture: %w: %v", ErrFormat, f)
	case max(size.X, size.Y) > maxJPEGSide:
		return nil, fmt.Errorf("writing the picture: a JPEG cannot be %d×%d pixels: choose a name ending in .png", size.X, size.Y)
	default:
		p.rows = newJPEGWriter(w, size)
	}
	return p, nil
}

// WriteRows writes the next rows. They are as wide as the picture and opaque. The Writer keeps no reference to them.
func (p *Writer) WriteRows(rows *image.RGBA) error {
	if p.err != nil {
		return p.err
	}
	b := rows.Bounds()
	if b.Dx() != p.size.X || p.next+b.Dy() > p.size.Y {
		p.err = fmt.Errorf("writing the picture: %d rows of %d pixels after row %d are not part of its %d×%d pixels", b.Dy(), b.Dx(), p.next, p.size.X, p.size.Y)
		return p.err
	}
	p.next += b.Dy()
	p.fail(p.rows.write(rows))
	return p.err
}

// Close writes what is left. It fails if rows are missing, or with the first error of WriteRows. It does not close the
// underlying writer.
func (p *Writer) Close() error {
	switch {
	case p.err != nil:
	case p.next < p.size.Y:
		p.err = fmt.Errorf("writing the picture: it has %d rows of pixels and only %d were written", p.size.Y, p.next)
	default:
		p.fail(p.rows.close())
	}
	return p.err
}

func (p *Writer) fail(err error) {
	if err != nil {
		p.err = fmt.Errorf("writing the picture: %w", err)
	}
}
