package picture

import (
	"bufio"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"io"
)

// Encode writes the part r of a picture, over white if it is transparent. A PNG
// is lossless: 8 bits a channel, or 16 if the picture has more than 8. A JPEG is
// refused if a side exceeds the 65,535 pixels its header can hold.
func Encode(w io.Writer, img image.Image, r image.Rectangle, f Format) error {
	if r.Empty() || !r.In(img.Bounds()) {
		return fmt.Errorf("writing the picture: %v is not within the picture's %v", r, img.Bounds())
	}
	if f == PNG && deep(img) {
		return encode(w, newStream(r, color.RGBA64Model, func(y0, y1 int, dst []rgb16) error {
			readBlock(img, image.Rect(r.Min.X, y0, r.Max.X, y1), dst, row16)
			return nil
		}), f)
	}
	return encode(w, newStream(r, color.RGBAModel, func(y0, y1 int, dst []rgb8) error {
		readBlock(img, image.Rect(r.Min.X, y0, r.Max.X, y1), dst, row8)
		return nil
	}), f)
}

// failing is a stream of either depth.
type failing interface {
	image.Image
	failure() error
}

func encode(w io.Writer, img failing, f Format) error {
	out := bufio.NewWriterSize(stopper{w, img.failure}, 1<<16)
	var err error
	switch f {
	case PNG:
		// BestSpeed: on photographs the better levels take several times as long
		// to save a few per cent.
		err = (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(out, img)
	case JPEG:
		if b := img.Bounds(); b.Dx() > maxJPEGSide || b.Dy() > maxJPEGSide {
			return fmt.Errorf("writing the picture: a JPEG cannot be %d×%d pixels: choose a name ending in .png", b.Dx(), b.Dy())
		}
		err = jpeg.Encode(out, img, &jpeg.Options{Quality: jpegQuality})
	default:
		return fmt.Errorf("writing the picture: %w: %v", ErrFormat, f)
	}
	if e := img.failure(); e != nil {
		return e
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return fmt.Errorf("writing the picture: %w", err)
	}
	return nil
}
