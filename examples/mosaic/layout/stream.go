package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// ErrBadLayout means that a stream is not a layout as [Layout.Write] writes it, or that it was damaged.
var ErrBadLayout = errors.New("not a layout of a mosaic")

// maxFile is more than the largest layout takes.
const maxFile = 64 << 20

// file is a layout as it is stored, in JSON.
type file struct {
	Library         string
	Tint            int
	Cols, Rows, Sub int
	Tiles           []int32
	Colours         []byte // three for each sub-cell
}

func (f *file) check() error {
	switch {
	case f.Cols < 1 || f.Rows < 1 || f.Cols > MaxCells/f.Rows || f.Sub != 1 && f.Sub != fine:
		return fmt.Errorf("it declares %d×%d cells of %d×%d", f.Cols, f.Rows, f.Sub, f.Sub)
	case f.Tint < 0 || f.Tint > MaxTint:
		return fmt.Errorf("it declares a tint of %d per cent", f.Tint)
	case len(f.Tiles) != f.Cols*f.Rows || len(f.Colours) != 3*len(f.Tiles)*f.Sub*f.Sub:
		return fmt.Errorf("it has %d tiles and %d values of colours for %d×%d cells", len(f.Tiles), len(f.Colours), f.Cols, f.Rows)
	case slices.Min(f.Tiles) < 0:
		return errors.New("it has a negative tile")
	}
	if id, err := hex.DecodeString(f.Library); err != nil || len(id) != sha256.Size {
		return fmt.Errorf("its library is called %.100q", f.Library)
	}
	return nil
}

// Write writes the layout to a stream, for [Read].
func (l *Layout) Write(w io.Writer) error {
	c := l.Cells
	f := file{Library: l.Library, Tint: l.Tint, Cols: c.Cols, Rows: c.Rows, Sub: c.Sub, Tiles: l.Tiles}
	for _, v := range c.Colours {
		f.Colours = append(f.Colours, v[:]...)
	}
	err := f.check()
	if err == nil {
		err = json.NewEncoder(w).Encode(f)
	}
	if err != nil {
		return fmt.Errorf("writing the layout: %w", err)
	}
	return nil
}

// Read reads a layout. An invalid stream gives [ErrBadLayout]. Errors of r are returned, too. Read
// does not know how many tiles the library has: [Layout.Lay] checks that.
func Read(r io.Reader) (*Layout, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxFile))
	if err != nil {
		return nil, fmt.Errorf("reading the layout: %w", err)
	}
	var f file
	if err = json.Unmarshal(data, &f); err == nil {
		err = f.check()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the layout: %w: %w", ErrBadLayout, err)
	}
	c := &Cells{Cols: f.Cols, Rows: f.Rows, Sub: f.Sub}
	for v := range slices.Chunk(f.Colours, 3) {
		c.Colours = append(c.Colours, Colour(v))
	}
	return &Layout{Library: f.Library, Tint: f.Tint, Cells: c, Tiles: f.Tiles}, nil
}
