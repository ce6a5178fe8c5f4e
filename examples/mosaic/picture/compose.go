package picture

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"io"
	"runtime"
)

// Compose writes one picture of the given size in pixels from n slices, top to
// bottom: open opens slice i, a PNG of a [Writer] as wide as the whole; what it opened is
// closed before the next slice is needed. A few rows are in memory at a time. The compressed rows of a PNG are copied as they are.
// The heights of the slices must add up to the height of the picture. The first
// error ends the work; what was written to w until then is useless.
func Compose(w io.Writer, f Format, size image.Point, n int, open func(i int) (io.ReadCloser, error)) error {
	var c composer
	var err error
	if f == PNG {
		c, err = newPNGComposer(w, size)
	} else {
		c, err = newRowComposer(w, f, size)
	}
	if err != nil {
		return err
	}
	y := 0
	for i := range n {
		height, err := composeSlice(c, size.X, size.Y-y, i, open)
		if err != nil {
			return fmt.Errorf("composing the picture: slice %d of %d: %w", i+1, n, err)
		}
		y += height
	}
	if y < size.Y {
		return fmt.Errorf("composing the picture: its slices have %d rows of pixels and the picture %d", y, size.Y)
	}
	return c.close()
}

// ComposeBytes estimates how much memory [Compose] takes for a picture, in bytes, at most.
func ComposeBytes(f Format, size image.Point) int64 {
	const buffers = 512 << 10 // of the decompressor and for what was read
	row := 4 * int64(size.X)
	if f == PNG {
		return buffers + row
	}
	// The rows, and again as much at most for their compressed data.
	bands := int64(bandsOf(size, runtime.GOMAXPROCS(0)))
	return buffers + 2*row*mcu*bands
}

// composer writes a picture from slices.
type composer interface {
	add(s *sliceReader) error
	close() error
}

// composeSlice adds one slice and returns its height.
func composeSlice(c composer, width, left, i int, open func(i int) (io.ReadCloser, error)) (height int, err error) {
	r, err := open(i)
	if err != nil {
		return 0, err
	}
	defer func() {
		if e := r.Close(); err == nil {
			err = e
		}
	}()
	s, err := newSliceReader(bufio.NewReaderSize(r, 1<<16))
	switch {
	case errors.Is(err, io.EOF):
		return 0, errNotSlice
	case err != nil:
		return 0, err
	case s.width != width:
		return 0, fmt.Errorf("it is %d pixels wide and the picture %d", s.width, width)
	case s.height > left:
		return 0, fmt.Errorf("it has %d rows of pixels and %d are left of the picture", s.height, left)
	}
	return s.height, c.add(s)
}

// pngComposer moves the compressed rows of slices into one PNG.
type pngComposer struct {
	chunks chunkWriter
	width  int
	sum    uint32 // Adler-32 of all rows so far
}

func newPNGComposer(w io.Writer, size image.Point) (*pngComposer, error) {
	if size.X < 1 || size.Y < 1 || size.X > MaxOutputSide || size.Y > MaxOutputSide {
		return nil, fmt.Errorf("composing the picture: it cannot be %d×%d pixels", size.X, size.Y)
	}
	c := &pngComposer{chunks: chunkWriter{w: w}, width: size.X, sum: 1}
	c.chunks.begin(size)
	c.chunks.chunk("IDAT", []byte(zlibHeader))
	return c, nil
}

func (c *pngComposer) add(s *sliceReader) error {
	sum, err := s.copyRows(func(rows []byte) { c.chunks.chunk("IDAT", rows) })
	if err != nil {
		return err
	}
	c.sum = joinAdler(c.sum, sum, int64(s.height)*int64(1+3*c.width))
	return c.chunks.err
}

func (c *pngComposer) close() error {
	c.chunks.chunk("IDAT", binary.BigEndian.AppendUint32([]byte(lastBlock), c.sum))
	c.chunks.chunk("IEND", nil)
	if c.chunks.err != nil {
		return fmt.Errorf("writing the picture: %w", c.chunks.err)
	}
	return nil
}

// joinAdler returns the Adler-32 (RFC 1950) of two parts, from theirs and the length of the second.
func joinAdler(first, second uint32, length int64) uint32 {
	const base = 65521
	a1, b1 := int64(first&0xffff), int64(first>>16)
	a2, b2 := int64(second&0xffff), int64(second>>16)
	a := (a1 + a2 + base - 1) % base
	b := (b1 + b2 + length%base*(a1+base-1)) % base
	return uint32(b<<16 | a) //nolint:gosec // both are below base
}

// rowComposer writes the rows of slices again.
type rowComposer struct {
	out *Writer
	row *image.RGBA
}

func newRowComposer(w io.Writer, f Format, size image.Point) (*rowComposer, error) {
	out, err := NewWriter(w, size, f)
	if err != nil {
		return nil, err
	}
	return &rowComposer{out, image.NewRGBA(image.Rect(0, 0, size.X, 1))}, nil
}

func (c *rowComposer) add(s *sliceReader) error {
	next := s.rows()
	for range s.height {
		row, err := next()
		if err != nil {
			return err
		}
		dst := c.row.Pix
		for len(row) >= 3 && len(dst) >= 4 {
			dst[0], dst[1], dst[2], dst[3] = row[0], row[1], row[2], 0xff
			row, dst = row[3:], dst[4:]
		}
		if err := c.out.WriteRows(c.row); err != nil {
			return err
		}
	}
	_, err := io.Copy(io.Discard, s) // the last checksum
	return err
}

func (c *rowComposer) close() error { return c.out.Close() }
