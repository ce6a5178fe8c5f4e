package tiles

import (
	"errors"
	"fmt"
	"image"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// Render lays the mosaic of a grid: each cell becomes the tile nearest to its
// mean colour. The picture is Size times as wide and high as the grid. It fails
// if the library is empty, the grid is empty or inconsistent, or the picture
// would have more than [picture.MaxPixels] pixels.
func (l *Library) Render(g picture.Grid) (*image.RGBA, error) {
	if l.Len() == 0 {
		return nil, errors.New("laying the mosaic: the library has no tiles")
	}
	if g.Cols < 1 || g.Rows < 1 || g.Cols > picture.MaxPixels || g.Rows > picture.MaxPixels || len(g.Means) != g.Cols*g.Rows {
		return nil, fmt.Errorf("laying the mosaic: a grid of %d×%d cells cannot have %d colours", g.Cols, g.Rows, len(g.Means))
	}
	if g.Cols*g.Rows > picture.MaxPixels/(l.size*l.size) {
		return nil, fmt.Errorf("laying the mosaic: %d×%d tiles of %d pixels are more than 50 megapixels: use smaller tiles", g.Cols, g.Rows, l.size)
	}
	img := image.NewRGBA(image.Rect(0, 0, g.Cols*l.size, g.Rows*l.size))
	row := 4 * l.size // bytes in a row of a tile
	for i, mean := range g.Means {
		pix := l.tiles[l.Nearest(LabOf(mean))].Pix
		at := img.PixOffset(i%g.Cols*l.size, i/g.Cols*l.size)
		for len(pix) > 0 {
			copy(img.Pix[at:], pix[:row])
			pix = pix[row:]
			at += img.Stride
		}
	}
	return img, nil
}
