// Package layout chooses a tile for every cell of a mosaic, and lays the tiles.
//
// [Measure] takes the colours of the picture, nine for each cell, so that edges
// within a cell are seen. [Choose] chooses a tile for every cell of the whole
// picture, because the choice for one cell depends on its neighbours. It visits
// the cells in a random order, the same each time. The cost of a tile grows with
// the distance of its sub-cells from the cell's in OKLab, with the errors of the
// neighbours that it does not make up for, and with its use, above all nearby.
// [Options.Reuse] sets the prices.
//
// The result, a [Layout], is small. It is cut into slices of whole rows with
// [Layout.Window], stored with [Layout.Write], read with [Read], and turned into
// pixels with [Layout.Lay]. The choice does not depend on how the
// layout is cut, nor on the machine.
package layout

import (
	"fmt"
	"image"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// Layout says which tile lies in every cell of a mosaic, or of some rows of it. Make one with [Choose] or [Read]. It
// must not be changed, and is safe for concurrent use.
type Layout struct {
	Library string  // the ID of the tile library
	Tint    int     // how much of Cells is mixed into the tiles, in per cent
	Cells   *Cells  // the colours of the picture under the tiles
	Tiles   []int32 // the tile of each cell, as its index in the library, row by row
}

// Window returns the part of a layout in a rectangle of cells, which must lie within it.
func (l *Layout) Window(r image.Rectangle) *Layout {
	c := l.Cells
	part := &Layout{Library: l.Library, Tint: l.Tint, Cells: &Cells{Cols: r.Dx(), Rows: r.Dy(), Sub: c.Sub}}
	n := c.Sub * c.Sub
	for y := r.Min.Y; y < r.Max.Y; y++ {
		first, end := y*c.Cols+r.Min.X, y*c.Cols+r.Max.X
		part.Tiles = append(part.Tiles, l.Tiles[first:end]...)
		part.Cells.Colours = append(part.Cells.Colours, c.Colours[first*n:end*n]...)
	}
	return part
}

// Distinct returns how many different tiles are used.
func (l *Layout) Distinct() int {
	seen := make(map[int32]struct{})
	for _, t := range l.Tiles {
		seen[t] = struct{}{}
	}
	return len(seen)
}

// MaxCells is the maximum number of cells of a mosaic.
const MaxCells = picture.MaxCells

// fine is how many sub-cells a cell has each way, if it has the pixels for them.
const fine = 3

// Colour is an sRGB colour: red, green and blue.
type Colour [3]uint8

// Cells are the colours of a picture on a grid of cells. Each cell is divided into Sub×Sub sub-cells: 3×3,
// or 1 where a cell has fewer than 3×3 pixels. The zero value has no cells.
type Cells struct {
	Cols, Rows int
	Sub        int      // sub-cells of a cell each way
	Colours    []Colour // mean colours of the sub-cells, cell by cell, row by row
}

// Measure takes the colours of the rectangle r of a picture, which is divided into cols×rows cells. It fails if r
// is not within the picture, if a cell would be smaller than a pixel, or if there are more than [MaxCells].
func Measure(img image.Image, r image.Rectangle, cols, rows int) (*Cells, error) {
	if cols < 1 || rows < 1 || cols > MaxCells/rows {
		return nil, fmt.Errorf("measuring the picture: %d×%d cells are not between 1 and %d: choose larger tiles", cols, rows, MaxCells)
	}
	c := &Cells{Cols: cols, Rows: rows, Sub: 1}
	if r.Dx() >= fine*cols && r.Dy() >= fine*rows {
		c.Sub = fine
	}
	c.Colours = make([]Colour, cols*rows*c.Sub*c.Sub)
	g, err := picture.Average(img, r, cols*c.Sub, rows*c.Sub)
	if err != nil {
		return nil, err
	}
	for i, m := range g.Means {
		c.Colours[c.at(i%g.Cols, i/g.Cols)] = Colour{picture.Encode8(m.R), picture.Encode8(m.G), picture.Encode8(m.B)}
	}
	return c, nil
}

// at returns the index of a sub-cell, counted across the whole grid.
func (c *Cells) at(x, y int) int {
	cell := y/c.Sub*c.Cols + x/c.Sub
	return cell*c.Sub*c.Sub + y%c.Sub*c.Sub + x%c.Sub
}

// Cell returns the colours of one cell.
func (c *Cells) Cell(i int) []Colour {
	n := c.Sub * c.Sub
	return c.Colours[i*n : (i+1)*n]
}

// The dial of reuse, a percentage.
const (
	// Once uses no tile twice if there are as many tiles as cells. Otherwise it uses all tiles about
	// equally often.
	Once = 0

	// DefaultReuse repeats tiles that match well. With fewer repetitions, tiles that match
	// nowhere show as specks.
	DefaultReuse = 80

	// BestMatch takes the tile that looks most like the cell, however often.
	BestMatch = 100
)

// MaxTint is the strongest tint, in per cent. Beyond it one sees the picture rather than the tiles.
const MaxTint = 40

// DefaultTint is the tint of a mosaic by default, in per cent. It pulls tiles of a wrong hue
// towards the picture, and is too weak to be noticed.
const DefaultTint = 12

// Options say how tiles are chosen and laid.
type Options struct {
	// Reuse says how freely tiles are used again, in per cent: from [Once] to [BestMatch].
	Reuse int

	// Tint is how much of the picture's own colours is mixed into the tiles, in per cent, 0 to [MaxTint].
	Tint int
}

// Validate returns an error that says which setting is out of bounds, or nil.
func (o Options) Validate() error {
	switch {
	case o.Reuse < Once || o.Reuse > BestMatch:
		return fmt.Errorf("choosing the tiles: a reuse of %d per cent is not possible: choose 0 (every tile once) to 100 (best match)", o.Reuse)
	case o.Tint < 0 || o.Tint > MaxTint:
		return fmt.Errorf("choosing the tiles: a tint of %d per cent is not possible: choose 0 to %d", o.Tint, MaxTint)
	}
	return nil
}
