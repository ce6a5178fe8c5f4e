package layout

import (
	"fmt"
	"image"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

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
	Colours    []Colour // mean colours of the sub-cells, those of one cell together, row by row
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
	err := picture.EachCell(img, r, cols*c.Sub, rows*c.Sub, func(x, y int, mean picture.Linear) {
		c.Colours[c.at(x, y)] = Colour{picture.Encode8(mean.R), picture.Encode8(mean.G), picture.Encode8(mean.B)}
	})
	if err != nil {
		return nil, err
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
