package picture

import (
	"fmt"
	"image"
	"io"
)

// blockPixels is how many pixels are converted at a time.
const blockPixels = 1 << 18

// Encode writes the part r of a picture with 8 bits a channel, over white if it is transparent. A PNG
// keeps these pixels exactly. A JPEG is refused if a side exceeds the 65,535 pixels its header can hold.
func Encode(w io.Writer, img image.Image, r image.Rectangle, f Format) error {
	if r.Empty() || !r.In(img.Bounds()) {
		return fmt.Errorf("writing the picture: %v is not within the picture's %v", r, img.Bounds())
	}
	out, err := NewWriter(w, r.Size(), f)
	if err != nil {
		return err
	}
	height := min(max(blockPixels/r.Dx(), 1), r.Dy())
	pixels := make([]rgb8, height*r.Dx())
	block := image.NewRGBA(image.Rect(0, 0, r.Dx(), height))
	for y := r.Min.Y; y < r.Max.Y; y += height {
		part := image.Rect(r.Min.X, y, r.Max.X, min(y+height, r.Max.Y))
		readBlock(img, part, pixels[:part.Dx()*part.Dy()], row8)
		block.Rect.Max.Y = part.Dy()
		for i, p := range pixels[:part.Dx()*part.Dy()] {
			block.Pix[4*i], block.Pix[4*i+1], block.Pix[4*i+2], block.Pix[4*i+3] = p[0], p[1], p[2], 0xff
		}
		if err := out.WriteRows(block); err != nil {
			return err
		}
	}
	return out.Close()
}
