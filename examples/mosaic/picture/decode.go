package picture

import (
	"fmt"
	"image"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"runtime/debug"
)

// Decode reads a JPEG, a PNG or the first frame of a GIF and returns it
// upright, with its top left corner at (0, 0). It reads a stream from start to
// end and never seeks, so r may be a file, a blob or a connection.
//
// The size is known, and held against [MaxPixels] and [MaxDecodeBytes], before
// any pixel is decoded. The errors are [ErrNotPicture], [ErrDamaged] and
// [ErrTooLarge] with an explanation, or the error of r. They do not
// name the file, which only the caller knows. A broken EXIF block is never an
// error: the picture is then not turned.
func Decode(r io.Reader) (image.Image, error) {
	src := newSource(r)
	h, all, err := inspect(src)
	if err != nil {
		return nil, err
	}
	img, o, err := h.decode(all)
	switch {
	case src.err != nil:
		return nil, fmt.Errorf("reading the picture: %w", src.err)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if h.DecodeBytes-h.retained > wasteful {
		// Hundreds of megabytes of decoder state have just become garbage. Collected now, they
		// do not let the heap grow further.
		debug.FreeOSMemory()
	}
	return turn(img, o), nil
}

func (h Header) decode(r io.Reader) (image.Image, orientation, error) {
	switch h.Format {
	case "jpeg":
		img, err := jpeg.Decode(r)
		return img, h.orientation, err
	case "png":
		w := newEXIFWatcher(r)
		img, err := png.Decode(w)
		return img, w.orientation(), err
	default:
		img, err := decodeGIF(r, image.Rect(0, 0, h.Width, h.Height))
		return img, upright, err
	}
}

// decodeGIF lays the first frame on the screen the GIF declares, of which a
// frame may cover any part.
func decodeGIF(r io.Reader, screen image.Rectangle) (image.Image, error) {
	frame, err := gif.Decode(r)
	if err != nil || frame.Bounds() == screen {
		return frame, err
	}
	whole := image.NewRGBA(screen)
	draw.Draw(whole, screen, image.White, image.Point{}, draw.Src)
	draw.Draw(whole, frame.Bounds(), frame, frame.Bounds().Min, draw.Over)
	return whole, nil
}
