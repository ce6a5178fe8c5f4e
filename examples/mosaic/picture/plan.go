package picture

import (
	"fmt"
	"image"
)

// Plan divides a picture into tiles, and the rows of tiles into slices. The
// zero value is an empty plan; [NewPlan] makes a useful one.
type Plan struct {
	Tile       int // side of a tile in pixels
	Cols, Rows int // whole tiles; what is left over at the right and bottom is cropped
	Slices     int // 1 to Rows
}

// NewPlan divides a picture of width×height pixels. It fails if the picture is
// smaller than one tile, or slices is not between 1 and the number of rows of
// tiles.
func NewPlan(width, height, tile, slices int) (Plan, error) {
	if tile < 1 {
		return Plan{}, fmt.Errorf("dividing the picture: a tile cannot be %d pixels wide", tile)
	}
	p := Plan{Tile: tile, Cols: width / tile, Rows: height / tile, Slices: slices}
	if p.Cols < 1 || p.Rows < 1 {
		return Plan{}, fmt.Errorf("dividing the picture: its %d×%d pixels do not hold one tile of %d×%d: choose smaller tiles", width, height, tile, tile)
	}
	if slices < 1 || slices > p.Rows {
		return Plan{}, fmt.Errorf("dividing the picture: it has %d rows of tiles, which cannot be cut into %d slices", p.Rows, slices)
	}
	return p, nil
}

// Size is the size of the cropped picture in pixels.
func (p Plan) Size() image.Point { return image.Pt(p.Cols*p.Tile, p.Rows*p.Tile) }

// Bounds is the part of the picture that consists of whole tiles.
func (p Plan) Bounds() image.Rectangle { return image.Rectangle{Max: p.Size()} }

// SliceRows gives the first row of tiles of slice i, counted from 0, and the
// row after its last. Slices differ in height by one row at most.
func (p Plan) SliceRows(i int) (first, end int) {
	return i * p.Rows / p.Slices, (i + 1) * p.Rows / p.Slices
}

// Slice is the part of the picture that slice i covers, in pixels.
func (p Plan) Slice(i int) image.Rectangle {
	first, end := p.SliceRows(i)
	return image.Rect(0, first*p.Tile, p.Cols*p.Tile, end*p.Tile)
}
