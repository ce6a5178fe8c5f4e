package picture

import (
	"fmt"
	"image"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"math"
	"runtime/debug"

	"golang.org/x/image/bmp"
	xtiff "golang.org/x/image/tiff" // the tests have a tiff of their own
	"golang.org/x/image/webp"
)

// Decode reads a JPEG, a PNG, the first frame of a GIF, a WebP that is not
// animated, the first page of a TIFF or a BMP, and returns it
// upright, with its top left corner at (0, 0). It reads a stream from start to
// end, so r may be a file, a blob or a connection. Only a TIFF is read
// where its directory says: from the file, if r is an io.ReaderAt and an io.Seeker,
// or else from a copy of the stream in memory.
//
// Pixels with a colour profile of three primaries and tone curves, such as
// Display P3 or Adobe RGB, or of a grey tone curve, are shown in sRGB; what
// sRGB cannot show is clipped. Other profiles are ignored: [Inspect] says so.
//
// The size is known, and held against [MaxPixels] and [MaxDecodeBytes], before
// any pixel is decoded. The errors are [ErrNotPicture], [ErrDamaged] and
// [ErrTooLarge] with an explanation, an [*UnsupportedError], or the error of r. They do not
// name the file, which only the caller knows. A broken EXIF block is never an
// error: the picture is then not turned.
func Decode(r io.Reader) (image.Image, error) {
	src := newSource(r)
	h, all, err := inspect(src, false)
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
	return turn(h.profile.view(img), o), nil
}

func (h Header) decode(r io.Reader) (img image.Image, o orientation, err error) {
	defer func() {
		// The decoders are given untrusted bytes. A panic of one must not end the program and the work on
		// other pictures.
		if p := recover(); p != nil {
			err = fmt.Errorf("the decoder failed: %v", p)
		}
	}()
	switch h.Format {
	case "jpeg":
		img, err = jpeg.Decode(r)
	case "png":
		w := newPNGWatcher(r)
		img, err = png.Decode(w)
		return img, w.orientation(h.orientation), err
	case "gif":
		img, err = decodeGIF(r, image.Rect(0, 0, h.Width, h.Height))
	case "webp":
		return h.decodeWebP(r)
	case "tiff":
		img, err = xtiff.Decode(r)
		limitToAlpha(img)
	case "bmp":
		img, err = bmp.Decode(r)
	default:
		panic("picture: no decoder for " + h.Format)
	}
	return img, h.orientation, err
}

func (h Header) decodeWebP(r io.Reader) (image.Image, orientation, error) {
	w := newWebPWatcher(r, int64(len("RIFFsizeWEBP")))
	img, err := webp.Decode(w)
	if err != nil {
		return nil, upright, err
	}
	switch img := img.(type) {
	case *image.YCbCr:
		fullRange(img)
	case *image.NYCbCrA:
		fullRange(&img.YCbCr)
	}
	if h.exifBehind {
		// An error stays in the source. A file that ends here is complete but for its metadata.
		_, _ = io.CopyN(io.Discard, w, maxHeader)
	}
	return img, w.orientation(h.orientation), nil
}

// fullRange stretches the video levels of a WebP (RFC 6386, section 9.2: luma of 16 to 235, chroma of 16 to
// 240) to the levels of a JPEG, which is what image.YCbCr means. x/image/webp does not.
func fullRange(img *image.YCbCr) {
	var luma, chroma [256]uint8
	for i := range 256 {
		luma[i] = uint8(min(max(math.Round(float64(i-16)*255/219), 0), 255))
		chroma[i] = uint8(min(max(math.Round(128+float64(i-128)*255/224), 0), 255))
	}
	for i, v := range img.Y {
		img.Y[i] = luma[v]
	}
	for _, plane := range [][]uint8{img.Cb, img.Cr} {
		for i, v := range plane {
			plane[i] = chroma[v]
		}
	}
}

// limitToAlpha lowers colours above their alpha, which a TIFF may have and no image.RGBA.
func limitToAlpha(img image.Image) {
	switch img := img.(type) {
	case *image.RGBA:
		for p := img.Pix; len(p) >= 4; p = p[4:] {
			p[0], p[1], p[2] = min(p[0], p[3]), min(p[1], p[3]), min(p[2], p[3])
		}
	case *image.RGBA64:
		for p := img.Pix; len(p) >= 8; p = p[8:] {
			a := be16(p[6:])
			for c := 0; c < 6; c += 2 {
				if be16(p[c:]) > a {
					copy(p[c:c+2], p[6:8])
				}
			}
		}
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
