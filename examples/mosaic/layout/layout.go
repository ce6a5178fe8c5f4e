package layout

import "image"

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
