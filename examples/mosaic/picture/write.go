package picture

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/draw"
	"image/png"
	"io"
	"os"
	"runtime/debug"
)

// Encode writes a picture as a PNG, over white if it is transparent.
func Encode(w io.Writer, img image.Image) error {
	if flat, ok := img.(*image.RGBA); !ok || !flat.Opaque() {
		img = OverWhite(img)
	}
	fast := png.Encoder{CompressionLevel: png.BestSpeed}
	if err := fast.Encode(w, img); err != nil {
		return fmt.Errorf("writing the picture: %w", err)
	}
	return nil
}

// Compose writes one PNG of the given size in pixels from n slices, top to bottom: open opens slice
// i, a PNG of [Encode] as wide as the whole, which is closed before the next slice is needed. The
// heights of the slices must add up to the height of the picture. The first error ends the work;
// the part written to w until then is useless.
func Compose(w io.Writer, size image.Point, n int, open func(i int) (io.ReadCloser, error)) error {
	if size.X < 1 || size.Y < 1 || size.X > MaxOutputPixels/size.Y {
		return fmt.Errorf("composing the picture: it cannot be %d×%d pixels", size.X, size.Y)
	}
	var whole *image.RGBA
	y := 0
	for i := range n {
		slice, err := readSlice(size.X, size.Y-y, i, open)
		if err != nil {
			return fmt.Errorf("composing the picture: slice %d of %d: %w", i+1, n, err)
		}
		if whole == nil && slice.Rect.Dy() == size.Y {
			whole = slice
		} else if whole == nil {
			whole = image.NewRGBA(image.Rectangle{Max: size})
		}
		if whole != slice {
			draw.Draw(whole, slice.Rect.Add(image.Pt(0, y)), slice, image.Point{}, draw.Src)
		}
		y += slice.Rect.Dy()
	}
	if y < size.Y {
		return fmt.Errorf("composing the picture: its slices have %d rows of pixels and the picture %d", y, size.Y)
	}
	return Encode(w, whole)
}

var errNotSlice = errors.New("it is not a slice of a mosaic")

// readSlice decodes a slice if it has the width of the picture and at most the height that is left.
func readSlice(width, left, i int, open func(i int) (io.ReadCloser, error)) (_ *image.RGBA, err error) {
	r, err := open(i)
	if err != nil {
		return nil, err
	}
	defer func() {
		if e := r.Close(); err == nil {
			err = e
		}
	}()
	b := bufio.NewReaderSize(r, 1<<16)
	head, err := b.Peek(33) // the signature and IHDR
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	config, err := png.DecodeConfig(bytes.NewReader(head))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errNotSlice, err)
	case config.Width != width:
		return nil, fmt.Errorf("it is %d pixels wide and the picture %d", config.Width, width)
	case config.Height > left:
		return nil, fmt.Errorf("it has %d rows of pixels and %d are left of the picture", config.Height, left)
	}
	img, err := png.Decode(b)
	if err != nil {
		return nil, fmt.Errorf("it is damaged: %w", err)
	}
	slice, ok := img.(*image.RGBA)
	if !ok {
		return nil, errNotSlice
	}
	return slice, nil
}

// LimitMemory tells the garbage collector to work harder once the process
// nears 850 MiB. A program calls it first thing in main. The setting is skipped
// if the environment variable GOMEMLIMIT already chose a limit.
//
// It is needed because by default the collector lets the heap grow to twice
// the live heap of the last collection: a 400 MB picture alone would allow
// 400 MB of garbage beside it. The limit is soft: it costs time, but no
// allocation fails.
func LimitMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(850 << 20)
	}
}
