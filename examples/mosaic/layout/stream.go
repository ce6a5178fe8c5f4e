package layout

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A layout is written as a line of text, a header of fixed size, the tiles as 32-bit numbers, and the colours.
const magic = "millrace mosaic layout 2\n"

// ErrBadLayout means that a stream is not a layout as [Layout.Write] writes it, or that it was damaged.
var ErrBadLayout = errors.New("not a layout of a mosaic")

// idLength is the length of the ID of a library, which is in hexadecimal.
const idLength = 64

// header has the numbers before the cells.
type header struct {
	Cols, Rows, Sub, Tint uint32
	Library               [idLength]byte
}

// check compares what a header declares with the limits.
func (h *header) check() error {
	switch cells := uint64(h.Cols) * uint64(h.Rows); {
	case cells < 1 || cells > MaxCells || h.Sub != 1 && h.Sub != fine:
		return fmt.Errorf("it declares %d×%d cells of %d×%d", h.Cols, h.Rows, h.Sub, h.Sub)
	case h.Tint > MaxTint:
		return fmt.Errorf("it declares a tint of %d per cent", h.Tint)
	}
	for _, c := range h.Library {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return fmt.Errorf("its library is called %q", h.Library[:])
		}
	}
	return nil
}

// Write writes the layout to a stream from which [Read] reads it.
func (l *Layout) Write(w io.Writer) error {
	h := header{Cols: uint32(l.Cells.Cols), Rows: uint32(l.Cells.Rows), Sub: uint32(l.Cells.Sub), Tint: uint32(l.Tint)}
	if n := copy(h.Library[:], l.Library); n < len(l.Library) {
		return fmt.Errorf("writing the layout: the ID of its library has %d bytes and not %d", len(l.Library), idLength)
	}
	if err := h.check(); err != nil {
		return fmt.Errorf("writing the layout: %w", err)
	}
	b := bufio.NewWriterSize(w, 1<<16)
	_, _ = b.WriteString(magic) // the buffer keeps the first error for Flush
	_ = binary.Write(b, binary.LittleEndian, h)
	var number [4]byte
	for _, t := range l.Tiles {
		binary.LittleEndian.PutUint32(number[:], uint32(t))
		_, _ = b.Write(number[:])
	}
	for i := range l.Cells.Colours {
		_, _ = b.Write(l.Cells.Colours[i][:])
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("writing the layout: %w", err)
	}
	return nil
}

// Read reads a layout. It trusts nothing: sizes are compared with the limits, and memory is allocated as the content arrives. Only
// whether the library has so many tiles is left to [Layout.Lay]. The error is [ErrBadLayout] for an invalid stream, or that of r.
func Read(r io.Reader) (*Layout, error) {
	s := &source{r: bufio.NewReaderSize(r, 1<<16)}
	l, err := s.layout()
	switch {
	case s.err != nil:
		return nil, fmt.Errorf("reading the layout: %w", s.err)
	case err != nil:
		return nil, fmt.Errorf("reading the layout: %w: %w", ErrBadLayout, err)
	}
	return l, nil
}

// source records the error of its reader, to distinguish it from invalid content.
type source struct {
	r   *bufio.Reader
	err error
}

var errEndsEarly = errors.New("it ends early")

// read fills b.
func (s *source) read(b []byte) error {
	_, err := io.ReadFull(s.r, b)
	if err == nil {
		return nil
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		s.err = err
	}
	return errEndsEarly
}

func (s *source) layout() (*Layout, error) {
	line := make([]byte, len(magic))
	if err := s.read(line); err != nil {
		return nil, err
	}
	if string(line) != magic {
		return nil, errors.New("it begins with something else")
	}
	fixed := make([]byte, binary.Size(header{}))
	if err := s.read(fixed); err != nil {
		return nil, err
	}
	var h header
	if _, err := binary.Decode(fixed, binary.LittleEndian, &h); err != nil {
		return nil, err
	}
	if err := h.check(); err != nil {
		return nil, err
	}
	l := &Layout{Library: string(h.Library[:]), Tint: int(h.Tint), Cells: &Cells{Cols: int(h.Cols), Rows: int(h.Rows), Sub: int(h.Sub)}}
	n := l.Cells.Cols * l.Cells.Rows
	var err error
	l.Tiles, err = readAll(s, n, 4, func(b []byte) int32 { return int32(binary.LittleEndian.Uint32(b)) })
	if err != nil {
		return nil, err
	}
	for i, t := range l.Tiles {
		if t < 0 {
			return nil, fmt.Errorf("cell %d has tile %d", i, t)
		}
	}
	l.Cells.Colours, err = readAll(s, n*l.Cells.Sub*l.Cells.Sub, 3, func(b []byte) Colour { return Colour(b) })
	if err != nil {
		return nil, err
	}
	if _, err := s.r.ReadByte(); !errors.Is(err, io.EOF) {
		s.err = err
		return nil, errors.New("it goes on after its end")
	}
	return l, nil
}

// readAll reads n values of size bytes.
func readAll[T any](s *source, n, size int, decode func([]byte) T) ([]T, error) {
	const chunk = 1 << 14
	list := make([]T, 0, min(n, chunk))
	buf := make([]byte, size*min(n, chunk))
	for len(list) < n {
		part := buf[:size*min(n-len(list), chunk)]
		if err := s.read(part); err != nil {
			return nil, err
		}
		for ; len(part) > 0; part = part[size:] {
			list = append(list, decode(part[:size]))
		}
	}
	return list, nil
}
