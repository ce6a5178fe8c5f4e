package picture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// upstood is the plain definition of the eight orientations, by the picture of
// CIPA DC-008: where the stored row 0 and column 0 are to be seen.
func upstood(src image.Image, o int) *image.RGBA64 {
	b := src.Bounds()
	w, h := b.Dx(), b.Dy()
	dst := image.NewRGBA64(image.Rect(0, 0, w, h))
	if o >= 5 {
		dst = image.NewRGBA64(image.Rect(0, 0, h, w))
	}
	for y := range h {
		for x := range w {
			var p image.Point
			switch o {
			case 1: // row 0 top, column 0 left
				p = image.Pt(x, y)
			case 2: // top, right
				p = image.Pt(w-1-x, y)
			case 3: // bottom, right
				p = image.Pt(w-1-x, h-1-y)
			case 4: // bottom, left
				p = image.Pt(x, h-1-y)
			case 5: // left, top
				p = image.Pt(y, x)
			case 6: // right, top
				p = image.Pt(h-1-y, x)
			case 7: // right, bottom
				p = image.Pt(h-1-y, w-1-x)
			case 8: // left, bottom
				p = image.Pt(y, w-1-x)
			}
			dst.Set(p.X, p.Y, src.At(b.Min.X+x, b.Min.Y+y))
		}
	}
	return dst
}

func samePixels(t *testing.T, got, want image.Image) {
	t.Helper()
	if got.Bounds() != want.Bounds() {
		t.Fatalf("bounds: got %v, want %v", got.Bounds(), want.Bounds())
	}
	b := got.Bounds()
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			g := color.RGBA64Model.Convert(got.At(x, y))
			w := color.RGBA64Model.Convert(want.At(x, y))
			if g != w {
				t.Fatalf("pixel (%d,%d): got %v, want %v", x, y, g, w)
			}
		}
	}
}

func TestDecodeStandsUpright(t *testing.T) {
	photo := image.NewYCbCr(image.Rect(0, 0, 37, 22), image.YCbCrSubsampleRatio420)
	noisy(1, photo.Y, photo.Cb, photo.Cr)
	jpg := asJPEG(t, photo)
	stored, err := Decode(bytes.NewReader(jpg))
	if err != nil {
		t.Fatal(err)
	}
	copied := image.NewRGBA(stored.Bounds()) // image/png would write YCbCr in 16 bits
	draw.Draw(copied, copied.Rect, stored, image.Point{}, draw.Src)
	drawn := asPNG(t, copied)
	for o := 1; o <= 8; o++ {
		for name, file := range map[string][]byte{
			"jpeg":              jpegWithEXIF(jpg, tiff(uint16(o))),
			"png":               pngWithEXIF(drawn, tiff(uint16(o)), true),
			"png behind pixels": pngWithEXIF(drawn, tiff(uint16(o)), false),
		} {
			t.Run(fmt.Sprint(name, " ", o), func(t *testing.T) {
				got, err := Decode(iotest.OneByteReader(bytes.NewReader(file)))
				if err != nil {
					t.Fatal(err)
				}
				want := upstood(stored, o)
				samePixels(t, got, want)
				h, err := Inspect(bytes.NewReader(file))
				if err != nil {
					t.Fatal(err)
				}
				if size := got.Bounds().Size(); image.Pt(h.Width, h.Height) != size {
					t.Errorf("Inspect: got %d×%d, want as Decode %v", h.Width, h.Height, size)
				}
			})
		}
	}
}

func TestDecodeIgnoresBrokenEXIF(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 9, 5))
	good := tiff(6)
	for name, exif := range map[string][]byte{
		"empty":        {},
		"nonsense":     []byte("this is not a TIFF file at all"),
		"cut off":      good[:15],
		"orientation0": tiff(0),
		"orientation9": tiff(9),
		"far offset":   append([]byte("MM\x00\x2a\xff\xff\xff\xff"), good[8:]...),
		"many entries": append([]byte("MM\x00\x2a\x00\x00\x00\x08\xff\xff"), tiff(1)[10:]...),
	} {
		for _, file := range [][]byte{
			jpegWithEXIF(asJPEG(t, img), exif), pngWithEXIF(asPNG(t, img), exif, true), pngWithEXIF(asPNG(t, img), exif, false),
		} {
			got, err := Decode(bytes.NewReader(file))
			if err != nil {
				t.Errorf("%s: got %v; want no error", name, err)
			} else if got.Bounds() != img.Bounds() {
				t.Errorf("%s: bounds: got %v, want %v", name, got.Bounds(), img.Bounds())
			}
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	jpg, pix := asJPEG(t, photos(40, 30)["YCbCr420"]), asPNG(t, photos(40, 30)["RGBA"])
	flipped := bytes.Clone(pix)
	flipped[len(flipped)/2] ^= 0x55
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"empty":          {nil, ErrNotPicture},
		"text":           {[]byte("hello, this is a text file"), ErrNotPicture},
		"short":          {[]byte{0xff}, ErrNotPicture},
		"jpeg cut early": {jpg[:20], ErrDamaged},
		"jpeg cut late":  {jpg[:len(jpg)-30], ErrDamaged},
		"png cut early":  {pix[:20], ErrDamaged},
		"png cut late":   {pix[:len(pix)-30], ErrDamaged},
		"png flipped":    {flipped, ErrDamaged},
		"gif cut":        {[]byte("GIF89a\x01\x00"), ErrDamaged},
		"gif too large":  {[]byte("GIF89a\xff\xff\xff\xff\x00\x00\x00"), ErrTooLarge},
	} {
		_, err := Decode(bytes.NewReader(c.file))
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got error %v, want %v", name, err, c.want)
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got error %q, want one line", name, err)
		}
	}
}

func TestDecodePassesOnFailuresOfTheReader(t *testing.T) {
	broken := errors.New("the cable was cut")
	for _, file := range [][]byte{asJPEG(t, photos(400, 300)["YCbCr420"]), asPNG(t, photos(400, 300)["RGBA"])} {
		for _, n := range []int{0, 5, 100, len(file) / 2} {
			_, err := Decode(io.MultiReader(bytes.NewReader(file[:n]), iotest.ErrReader(broken)))
			if !errors.Is(err, broken) || errors.Is(err, ErrDamaged) {
				t.Errorf("after %d bytes: got error %v, want %v", n, err, broken)
			}
		}
	}
}

func TestDecodeGIFLaysTheFirstFrameOnWhite(t *testing.T) {
	red, blue := color.RGBA{255, 0, 0, 255}, color.RGBA{0, 0, 255, 255}
	frame := image.NewPaletted(image.Rect(2, 1, 5, 3), color.Palette{red, color.Transparent})
	frame.SetColorIndex(3, 1, 1)
	second := image.NewPaletted(image.Rect(0, 0, 8, 6), color.Palette{blue, red})
	var b bytes.Buffer
	err := gif.EncodeAll(&b, &gif.GIF{Image: []*image.Paletted{frame, second}, Delay: []int{1, 1}, Config: image.Config{Width: 8, Height: 6}})
	if err != nil {
		t.Fatal(err)
	}
	img, err := Decode(&b)
	if err != nil {
		t.Fatal(err)
	}
	if img.Bounds() != image.Rect(0, 0, 8, 6) {
		t.Fatalf("bounds: got %v, want %v", img.Bounds(), image.Rect(0, 0, 8, 6))
	}
	for p, want := range map[image.Point]rgb8{{X: 2, Y: 1}: {255, 0, 0}, {X: 3, Y: 1}: {255, 255, 255}, {X: 0, Y: 0}: {255, 255, 255}, {X: 4, Y: 2}: {255, 0, 0}} {
		if got := at8(img, p.X, p.Y); got != want {
			t.Errorf("pixel %v: got %v, want %v", p, got, want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	small := photos(9, 7)
	f.Add(asJPEG(f, small["YCbCr420"]))
	f.Add(jpegWithEXIF(asJPEG(f, small["Gray"]), tiff(6)))
	f.Add(pngWithEXIF(asPNG(f, small["NRGBA64"]), tiff(8), false))
	f.Add(asPNG(f, small["Paletted"]))
	f.Add([]byte("GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\xff\xff\xff,\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"))
	for _, file := range webps {
		f.Add(file)
		f.Add(extended(file, 1<<3, riffChunk("ICCP", displayP3()), riffChunk("EXIF", tiff(8))))
	}
	f.Add(encodedAs(f, "bmp", small["Gray"]))
	f.Add(encodedAs(f, "deflated tiff", small["NRGBA64"]))
	f.Add(rgbTIFF(binary.BigEndian, 9, 7, short(274, 6)))
	f.Add(jpegWithProfile(asJPEG(f, small["YCbCr420"]), displayP3(), 100))
	f.Fuzz(func(t *testing.T, file []byte) {
		h, err := Inspect(bytes.NewReader(file))
		if err != nil || h.Width*h.Height > 1<<20 {
			return
		}
		img, err := Decode(bytes.NewReader(file))
		if err != nil {
			return
		}
		if _, err := Average(img, img.Bounds(), 1, 1); err != nil {
			t.Fatal(err)
		}
	})
}
