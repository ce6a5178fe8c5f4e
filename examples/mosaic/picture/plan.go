package picture

import (
	"cmp"
	"fmt"
	"image"
	"math"
)

const (
	// MaxOutputPixels is the largest mosaic that is made: 100 megapixels.
	MaxOutputPixels = 100_000_000

	// MaxCells is the maximum number of tiles in a mosaic.
	MaxCells = 1 << 20

	// DefaultSlices is the default number of slices of a mosaic of up to DefaultSlices × slicePixels.
	DefaultSlices = 8

	// slicePixels is the maximum number of pixels of a slice if the number of slices is not given. It
	// makes the work on one slice short, and the progress of a large mosaic smooth.
	slicePixels = 4_000_000
)

// Plan divides a picture into cells, one for each tile of the mosaic, and the rows of cells into
// slices. The zero value is an empty plan; [NewPlan] makes a useful one.
type Plan struct {
	Tile       int             // side of a tile in pixels of the mosaic
	Cols, Rows int             // tiles
	Slices     int             // 1 to Rows
	Crop       image.Rectangle // the part of the input under the tiles, in its pixels, from its top left corner
}

// PlanOptions configure a [Plan]. The zero value means the defaults.
type PlanOptions struct {
	// Scale is how many times as wide and high as its input the mosaic is, to the nearest hundredth. Defaults to 1.
	Scale float64

	// Slices is the number of slices. Defaults to [DefaultSlices], more if a slice would have more than 4 megapixels, or
	// fewer if there are fewer rows of tiles.
	Slices int
}

// NewPlan divides a picture of width×height pixels, which is scaled and cropped to whole tiles. It
// fails if a cell of the picture would be smaller than a pixel, if no tile or too many tiles fit,
// if the mosaic would be too large, or if it cannot be cut into that many slices. The error gives
// advice.
func NewPlan(width, height, tile int, o PlanOptions) (Plan, error) {
	p, err := divide(width, height, tile, o)
	if err != nil {
		return Plan{}, fmt.Errorf("dividing the picture: %w", err)
	}
	return p, nil
}

func divide(width, height, tile int, o PlanOptions) (Plan, error) {
	if tile < 1 {
		return Plan{}, fmt.Errorf("a tile cannot be %d pixels wide", tile)
	}
	o.Scale = cmp.Or(o.Scale, 1)
	if err := CheckScale(o.Scale); err != nil {
		return Plan{}, err
	}
	s := int(math.Round(o.Scale * unity))
	if s > unity*tile {
		return Plan{}, fmt.Errorf("at scale %v a tile of %d×%d would stand for less than a pixel of the picture: choose larger tiles, or a scale of at most %d", o.Scale, tile, tile, tile)
	}
	p := Plan{Tile: tile, Cols: width * s / (unity * tile), Rows: height * s / (unity * tile), Slices: o.Slices}
	// To the nearest pixel, which is within the picture. No cell becomes smaller than a pixel by that.
	pixels := func(cells int) int { return (2*cells*tile*unity + s) / (2 * s) }
	p.Crop = image.Rect(0, 0, pixels(p.Cols), pixels(p.Rows))
	size := p.Size()
	switch {
	case p.Cols < 1 || p.Rows < 1:
		return Plan{}, fmt.Errorf("its %d×%d pixels at scale %v do not hold one tile of %d×%d: choose smaller tiles or a larger scale", width, height, o.Scale, tile, tile)
	case p.Cols > MaxCells/p.Rows:
		return Plan{}, fmt.Errorf("%d×%d tiles are more than %d: choose larger tiles or a smaller scale", p.Cols, p.Rows, MaxCells)
	case size.X > MaxOutputPixels/size.Y:
		return Plan{}, fmt.Errorf("the mosaic would have %d×%d pixels, more than %d megapixels: choose a smaller scale", size.X, size.Y, MaxOutputPixels/1_000_000)
	case p.Slices == 0:
		p.Slices = min(max(DefaultSlices, (size.X*size.Y+slicePixels-1)/slicePixels), p.Rows)
	case p.Slices < 1 || p.Slices > p.Rows:
		return Plan{}, fmt.Errorf("it has %d rows of tiles, which cannot be cut into %d slices", p.Rows, p.Slices)
	}
	return p, nil
}

// Size is the size of the mosaic in pixels.
func (p Plan) Size() image.Point { return image.Pt(p.Cols*p.Tile, p.Rows*p.Tile) }

// SliceRows gives the first row of tiles of slice i, counted from 0, and the
// row after its last. Slices differ in height by one row at most.
func (p Plan) SliceRows(i int) (first, end int) {
	return i * p.Rows / p.Slices, (i + 1) * p.Rows / p.Slices
}

// MinScale and MaxScale bound the scale of a mosaic. With the largest, a pixel becomes the largest tile.
const (
	MinScale = 0.01
	MaxScale = 64

	unity = 100
)

// CheckScale returns an error unless the scale is from [MinScale] to [MaxScale].
func CheckScale(s float64) error {
	if !(s >= MinScale && s <= MaxScale) { // nor is NaN
		return fmt.Errorf("a scale of %v is not possible: choose %v to %v", s, MinScale, MaxScale)
	}
	return nil
}
