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
	_ = binary.Write(b, binary.LittleEndian, l.Tiles)
	for i := range l.Cells.Colours {
		_, _ = b.Write(l.Cells.Colours[i][:])
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("writing the layout: %w", err)
	}
	return nil
}

// Read reads a layout. It trusts nothing: sizes are compared with the limits before memory is allocated. Only whether the library has
// so many tiles is left to [Layout.Lay]. The error is [ErrBadLayout] for an invalid stream, or that of r.
func Read(r io.Reader) (*Layout, error) {
	b := bufio.NewReaderSize(r, 1<<16)
	l, err := read(b)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = bad("it ends early")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the layout: %w", err)
	}
	return l, nil
}

// bad is an error about the content.
func bad(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrBadLayout}, args...)...)
}

func read(r *bufio.Reader) (*Layout, error) {
	line := make([]byte, len(magic))
	if _, err := io.ReadFull(r, line); err != nil {
		return nil, err
	}
	if string(line) != magic {
		return nil, bad("it begins with something else")
	}
	var h header
	if err := binary.Read(r, binary.LittleEndian, &h); err != nil {
		return nil, err
	}
	if err := h.check(); err != nil {
		return nil, bad("%w", err)
	}
	c := &Cells{Cols: int(h.Cols), Rows: int(h.Rows), Sub: int(h.Sub)}
	l := &Layout{Library: string(h.Library[:]), Tint: int(h.Tint), Cells: c, Tiles: make([]int32, c.Cols*c.Rows)}
	if err := binary.Read(r, binary.LittleEndian, l.Tiles); err != nil {
		return nil, err
	}
	for i, t := range l.Tiles {
		if t < 0 {
			return nil, bad("cell %d has tile %d", i, t)
		}
	}
	c.Colours = make([]Colour, len(l.Tiles)*c.Sub*c.Sub)
	for i := range c.Colours {
		if _, err := io.ReadFull(r, c.Colours[i][:]); err != nil {
			return nil, err
		}
	}
	switch _, err := r.ReadByte(); {
	case err == nil:
		return nil, bad("it goes on after its end")
	case err != io.EOF:
		return nil, err
	}
	return l, nil
}
