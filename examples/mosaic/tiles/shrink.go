package tiles

import (
	"fmt"
	"image"

	"golang.org/x/image/draw"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// fromImage makes a tile of the square in the middle of a picture.
func fromImage(name string, img image.Image, size int) (Tile, error) {
	crop := middle(img.Bounds())
	g, err := picture.Average(img, crop, 1, 1)
	if err != nil {
		return Tile{}, fmt.Errorf("making a tile: %w", err)
	}
	t := Tile{Name: name, Mean: g.Means[0]}
	if crop.Dx() < size {
		t.Pix, err = enlarge(img, crop, size)
		return t, err
	}
	// Averaging by area in linear light keeps the mean of the square: whatever
	// the scale, no pixel counts more than another.
	g, err = picture.Average(img, crop, size, size)
	if err != nil {
		return Tile{}, fmt.Errorf("making a tile: %w", err)
	}
	t.Pix = make([]byte, 0, size*size*4)
	for _, c := range g.Means {
		t.Pix = append(t.Pix, picture.Encode8(c.R), picture.Encode8(c.G), picture.Encode8(c.B), 0xff)
	}
	return t, nil
}

// middle is the largest square in the middle of a rectangle.
func middle(r image.Rectangle) image.Rectangle {
	side := min(r.Dx(), r.Dy())
	corner := r.Min.Add(image.Pt((r.Dx()-side)/2, (r.Dy()-side)/2))
	return image.Rectangle{Min: corner, Max: corner.Add(image.Pt(side, side))}
}

// enlarge scales a square smaller than a tile, also in linear light, with the
// Catmull-Rom kernel, which keeps edges crisp where a straight interpolation
// blurs them.
func enlarge(img image.Image, crop image.Rectangle, size int) ([]byte, error) {
	g, err := picture.Cells(img, crop, 1)
	if err != nil {
		return nil, fmt.Errorf("making a tile: %w", err)
	}
	src := image.NewRGBA64(image.Rect(0, 0, g.Cols, g.Rows))
	for i, c := range g.Means {
		p := src.Pix[8*i:]
		for k, v := range [4]float64{c.R, c.G, c.B, 1} {
			u := uint16(v*0xffff + 0.5)
			p[2*k], p[2*k+1] = byte(u>>8), byte(u)
		}
	}
	dst := image.NewRGBA64(image.Rect(0, 0, size, size))
	draw.CatmullRom.Scale(dst, dst.Bounds(), src, src.Bounds(), draw.Src, nil)
	pix := make([]byte, 0, size*size*4)
	for i := 0; i < len(dst.Pix); i += 8 {
		for k := 0; k < 6; k += 2 {
			light := float64(uint16(dst.Pix[i+k])<<8|uint16(dst.Pix[i+k+1])) / 0xffff
			pix = append(pix, picture.Encode8(light))
		}
		pix = append(pix, 0xff)
	}
	return pix, nil
}
