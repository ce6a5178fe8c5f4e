package layout

import (
	"errors"
	"fmt"
	"image"

	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// ErrOtherLibrary means that a layout was chosen from another library than it is laid with.
var ErrOtherLibrary = errors.New("the layout was chosen from another tile library")

// Lay lays the tiles. The library must be the one of [Choose], or be made from it by
// [tiles.Library.Shrink]. Each cell of the result has Size×Size pixels, the Size of the library. A
// cell does not depend on its neighbours, so parts of a layout give the same pixels as the whole.
func (l *Layout) Lay(library *tiles.Library) (*image.RGBA, error) {
	if library.Origin() != l.Library {
		return nil, fmt.Errorf("laying the tiles: %w", ErrOtherLibrary)
	}
	for i, t := range l.Tiles {
		if t < 0 || int(t) >= library.Len() {
			return nil, fmt.Errorf("laying the tiles: cell %d has tile %d, and the library has %d", i, t, library.Len())
		}
	}
	size := library.Size()
	img := image.NewRGBA(image.Rect(0, 0, l.Cells.Cols*size, l.Cells.Rows*size))
	mix := newTint(l.Tint, l.Cells.Sub, size)
	for i, t := range l.Tiles {
		pix := library.Tile(int(t)).Pix
		at := img.PixOffset(i%l.Cells.Cols*size, i/l.Cells.Cols*size)
		for y := range size {
			row := img.Pix[at : at+4*size]
			copy(row, pix)
			if mix != nil {
				mix.row(row, l.Cells.Cell(i), y)
			}
			pix = pix[4*size:]
			at += img.Stride
		}
	}
	return img, nil
}

// tint mixes the colours of the picture into tiles. Between the centres of the sub-cells it interpolates, and it
// extends the slope to the edges of the cell, so that no sub-cells can be seen.
type tint struct {
	amount  int32          // in per cent
	sub     int            // sub-cells each way
	weights [][fine]int32  // of the sub-cells, for every pixel along a side
	column  [fine][3]int32 // the colours of the columns of sub-cells in one row of pixels
}

const tintUnit = 256 // the sum of the weights of a pixel

// newTint returns nil if there is nothing to mix in.
func newTint(percent, sub, size int) *tint {
	if percent == 0 {
		return nil
	}
	m := &tint{amount: int32(percent), sub: sub, weights: make([][fine]int32, size)}
	for i := range m.weights {
		if sub == 1 {
			m.weights[i] = [fine]int32{tintUnit}
			continue
		}
		// The distance of the pixel's centre from the centre of the first sub-cell, in sub-cells.
		place := ((2*i+1)*fine - size) * tintUnit / (2 * size)
		k := 0
		if place >= tintUnit {
			k = 1
		}
		next := int32(place - k*tintUnit)
		m.weights[i][k], m.weights[i][k+1] = tintUnit-next, next
	}
	return m
}

// row mixes the colours of a cell into row y of its tile.
func (m *tint) row(pix []byte, cell []Colour, y int) {
	for k := range m.sub {
		m.column[k] = [3]int32{}
		for j := range m.sub {
			c, w := cell[j*m.sub+k], m.weights[y][j]
			for n := range c {
				m.column[k][n] += w * int32(c[n])
			}
		}
	}
	for x := range m.weights {
		w := &m.weights[x]
		p := pix[4*x : 4*x+3]
		for n := range p {
			c := (w[0]*m.column[0][n] + w[1]*m.column[1][n] + w[2]*m.column[2][n]) >> 16
			c = min(max(c, 0), 255)
			p[n] = uint8((int32(p[n])*(100-m.amount) + c*m.amount + 50) / 100)
		}
	}
}
