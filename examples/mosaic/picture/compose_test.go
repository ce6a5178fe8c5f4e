package picture

import (
	"bytes"
	"errors"
	"image"
	"image/draw"
	"image/png"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/suitetest"
)

// part is a part of a picture, of its own kind if that has parts.
func part(img image.Image, r image.Rectangle) image.Image {
	if whole, ok := img.(interface {
		SubImage(image.Rectangle) image.Image
	}); ok {
		return whole.SubImage(r)
	}
	return window{img, r}
}

type window struct {
	image.Image
	r image.Rectangle
}

func (w window) Bounds() image.Rectangle { return w.r }

// slicesOf writes n slices of a picture into memory.
func slicesOf(t interface{ Fatal(...any) }, img image.Image, n int) [][]byte {
	files := make([][]byte, n)
	for i := range files {
		r := img.Bounds()
		r.Min.Y, r.Max.Y = r.Min.Y+i*r.Dy()/n, r.Min.Y+(i+1)*r.Dy()/n
		var b bytes.Buffer
		if err := Encode(&b, part(img, r)); err != nil {
			t.Fatal(err)
		}
		files[i] = b.Bytes()
	}
	return files
}

func opener(files [][]byte) func(i int) (io.ReadCloser, error) {
	return func(i int) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files[i])), nil }
}

// pixelsOf decodes a file with the standard library.
func pixelsOf(t interface{ Fatal(...any) }, file []byte) *image.RGBA {
	img, _, err := image.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	dst := image.NewRGBA(img.Bounds())
	draw.Draw(dst, dst.Rect, img, img.Bounds().Min, draw.Src)
	return dst
}

func TestEncodedPNGsHaveThePixelsOfThePicture(t *testing.T) {
	for name, img := range photos(75, 66) {
		r := img.Bounds()
		r.Min = r.Min.Add(image.Pt(3, 5))
		var b bytes.Buffer
		if err := Encode(&b, part(img, r)); err != nil {
			t.Fatal(err)
		}
		want, got := OverWhite(img), pixelsOf(t, b.Bytes())
		for y := range got.Rect.Dy() {
			for x := range got.Rect.Dx() {
				if have, p := at8(got, x, y), at8(want, x+3, y+5); have != p {
					t.Fatalf("%s: pixel %d,%d: got %v, want %v", name, x, y, have, p)
				}
			}
		}
	}
}

func TestComposeGivesThePixelsOfThePictureHoweverItIsCut(t *testing.T) {
	if testing.Short() {
		t.Skip("composes many pictures")
	}
	suitetest.Checks(t, 25)
	all := photos(37, 90)
	rapid.Check(t, func(t *rapid.T) {
		img := all[rapid.SampledFrom([]string{"YCbCr420", "RGBA", "Gray"}).Draw(t, "kind")]
		n := rapid.IntRange(1, 90).Draw(t, "slices")
		files := slicesOf(t, img, n)
		var got, want bytes.Buffer
		if err := Compose(&got, img.Bounds().Size(), n, opener(files)); err != nil {
			t.Fatal(err)
		}
		if err := Encode(&want, img); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(pixelsOf(t, got.Bytes()).Pix, pixelsOf(t, want.Bytes()).Pix) {
			t.Fatalf("composed of %d slices: got other pixels, want those of one written at once", n)
		}
	})
}

func TestComposeErrors(t *testing.T) {
	img := photos(64, 64)["RGBA"]
	files := slicesOf(t, img, 2)
	var foreign bytes.Buffer
	if err := png.Encode(&foreign, image.NewRGBA(image.Rect(0, 0, 64, 32))); err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(files[1])
	flipped[len(flipped)/2] ^= 1
	lost := errors.New("the blob is lost")
	for name, c := range map[string]struct {
		size image.Point
		open func(int) (io.ReadCloser, error)
		want string
	}{
		"too high":  {image.Pt(64, 80), opener(files), "its slices have 64 rows of pixels and the picture 80"},
		"too low":   {image.Pt(64, 32), opener(files), "slice 2 of 2: it has 32 rows of pixels and 0 are left"},
		"cut short": {image.Pt(64, 48), opener(files), "slice 2 of 2: it has 32 rows of pixels and 16 are left"},
		"too wide":  {image.Pt(65, 64), opener(files), "slice 1 of 2: it is 64 pixels wide"},
		"no size":   {image.Point{}, opener(files), "cannot be"},
		"shortened": {image.Pt(64, 64), opener([][]byte{files[0], files[1][:99]}), "slice 2 of 2: it is"},
		"no header": {image.Pt(64, 64), opener([][]byte{files[0], files[1][:9]}), "slice 2 of 2: it is"},
		"empty":     {image.Pt(64, 64), opener([][]byte{nil}), "slice 1 of 2: it is"},
		"a flipped": {image.Pt(64, 64), opener([][]byte{files[0], flipped}), "slice 2 of 2: it is"},
		"foreign":   {image.Pt(64, 64), opener([][]byte{files[0], foreign.Bytes()}), "slice 2 of 2: it is not a slice"},
		"a JPEG":    {image.Pt(64, 64), opener([][]byte{[]byte("\xff\xd8\xff\xe0\x00\x10JFIF\x00")}), "slice 1 of 2: it is not a slice"},
		"lost":      {image.Pt(64, 64), func(int) (io.ReadCloser, error) { return nil, lost }, "lost"},
	} {
		err := Compose(io.Discard, c.size, 2, c.open)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got error %v, want %q", name, err, c.want)
		}
	}
}

func TestEncodeErrors(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 70_000, 1))
	full := errors.New("the disk is full")
	if err := Encode(io.Discard, img); err != nil {
		t.Errorf("wide picture: got the error %v, want none", err)
	}
	if err := Encode(io.Discard, img.SubImage(image.Rectangle{})); err == nil {
		t.Error("no pixels: got no error, want one")
	}
	if err := Encode(failingWriter{full}, img); !errors.Is(err, full) {
		t.Errorf("full disk: got %v, want its error", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// Whatever is read as a slice, composing ends, and without an error only with the pixels that were written.
func FuzzCompose(f *testing.F) {
	size := image.Pt(5, 4)
	img := image.NewRGBA(image.Rectangle{Max: size})
	noisy(9, img.Pix)
	good := slicesOf(f, img, 1)[0]
	f.Add(good)
	for _, at := range []int{0, 20, 40, 60, len(good) - 20} {
		f.Add(good[:at])
		f.Add(append(bytes.Clone(good[:at]), good[at+1:]...))
	}
	f.Fuzz(func(t *testing.T, slice []byte) {
		var got bytes.Buffer
		if err := Compose(&got, size, 1, opener([][]byte{slice})); err != nil {
			return
		}
		if b := pixelsOf(t, got.Bytes()).Bounds(); b.Size() != size {
			t.Fatalf("got bounds %v, want %v", b, size)
		}
	})
}
