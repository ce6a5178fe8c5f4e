package picture

import (
	"bytes"
	"errors"
	"image"
	"image/png"
	"io"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// slicesOf cuts a picture into memory.
func slicesOf(t interface{ Fatal(...any) }, img image.Image, p Plan) [][]byte {
	bufs := make([]bytes.Buffer, p.Slices)
	if err := Cut(img, p, func(i int) (io.WriteCloser, error) { return nopCloser{&bufs[i]}, nil }); err != nil {
		t.Fatal(err)
	}
	files := make([][]byte, p.Slices)
	for i := range bufs {
		files[i] = bufs[i].Bytes()
	}
	return files
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func opener(files [][]byte) func(i int) (io.ReadCloser, error) {
	return func(i int) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files[i])), nil }
}

func TestPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tile := rapid.IntRange(1, 64).Draw(t, "tile")
		w, h := rapid.IntRange(tile, 9000).Draw(t, "w"), rapid.IntRange(tile, 9000).Draw(t, "h")
		n := rapid.IntRange(1, h/tile).Draw(t, "slices")
		p, err := NewPlan(w, h, tile, n)
		if err != nil {
			t.Fatal(err)
		}
		if b := p.Bounds(); b.Dx() > w || b.Dy() > h || w-b.Dx() >= tile || h-b.Dy() >= tile || b.Dx()%tile+b.Dy()%tile != 0 {
			t.Fatalf("%d×%d cropped: got %v, want whole tiles within the picture", w, h, b)
		}
		y, low, high := 0, math.MaxInt, 0
		for i := range n {
			r := p.Slice(i)
			if r.Min != image.Pt(0, y) || r.Max.X != p.Size().X || r.Dy()%tile != 0 {
				t.Fatalf("slice %d: got %v, want it to start at row %d with the picture's width", i, r, y)
			}
			y = r.Max.Y
			low, high = min(low, r.Dy()/tile), max(high, r.Dy()/tile)
		}
		if y != p.Size().Y || low < 1 || high-low > 1 {
			t.Fatalf("slices: got the end %d and %d to %d rows; want the end %d and rows that differ by one at most", y, low, high, p.Size().Y)
		}
	})
	for _, c := range [][4]int{{100, 100, 0, 1}, {100, 100, 101, 1}, {100, 100, 10, 0}, {100, 100, 10, 11}, {0, 0, 1, 1}} {
		if _, err := NewPlan(c[0], c[1], c[2], c[3]); err == nil {
			t.Errorf("NewPlan%v: got no error, want one", c)
		}
	}
}

func TestCutKeepsPixels(t *testing.T) {
	for name, img := range photos(75, 66) {
		for _, o := range []orientation{1, 6, 7} {
			seen := turn(img, o)
			b := seen.Bounds()
			p, err := NewPlan(b.Dx(), b.Dy(), 8, 3)
			if err != nil {
				t.Fatal(err)
			}
			for i, file := range slicesOf(t, seen, p) {
				got, err := png.Decode(bytes.NewReader(file))
				if err != nil {
					t.Fatal(err)
				}
				if deep(got) != deep(img) {
					t.Errorf("%s: more than 8 bits a channel: got %v, want %v", name, deep(got), deep(img))
				}
				r := p.Slice(i)
				want, have := make([]rgb16, r.Dx()*r.Dy()), make([]rgb16, r.Dx()*r.Dy())
				if deep(img) {
					readBlock(seen, r, want, row16)
				} else {
					block := make([]rgb8, len(want))
					readBlock(seen, r, block, row8)
					for k, q := range block {
						want[k] = rgb16{uint16(q[0]) * 257, uint16(q[1]) * 257, uint16(q[2]) * 257}
					}
				}
				readBlock(got, got.Bounds(), have, row16)
				for k := range want {
					if want[k] != have[k] {
						t.Fatalf("%s, orientation %d, slice %d: pixel %d: got %v, want %v", name, o, i, k, have[k], want[k])
					}
				}
			}
		}
	}
}

func TestComposeRestoresThePicture(t *testing.T) {
	all := photos(24, 60)
	rapid.Check(t, func(t *rapid.T) {
		img := all[rapid.SampledFrom([]string{"YCbCr420", "RGBA", "Gray"}).Draw(t, "kind")]
		tile := rapid.IntRange(1, 20).Draw(t, "tile")
		p, err := NewPlan(24, 60, tile, rapid.IntRange(1, min(60/tile, 5)).Draw(t, "slices"))
		if err != nil {
			t.Fatal(err)
		}
		files := slicesOf(t, img, p)
		for _, f := range []Format{PNG, JPEG} {
			var got, want bytes.Buffer
			if err := Compose(&got, f, p.Size(), p.Slices, opener(files)); err != nil {
				t.Fatal(err)
			}
			if err := Encode(&want, img, p.Bounds(), f); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got.Bytes(), want.Bytes()) {
				t.Fatalf("%v composed of slices: got other bytes, want those of one written at once", f)
			}
		}
	})
}

func TestComposeErrors(t *testing.T) {
	img := photos(64, 64)["RGBA"]
	p, err := NewPlan(64, 64, 16, 2)
	if err != nil {
		t.Fatal(err)
	}
	files := slicesOf(t, img, p)
	lost := errors.New("the blob is lost")
	for name, c := range map[string]struct {
		size image.Point
		open func(int) (io.ReadCloser, error)
		want string
	}{
		"too high":  {image.Pt(64, 80), opener(files), "not as high"},
		"too low":   {image.Pt(64, 32), opener(files), "higher than"},
		"cut short": {image.Pt(64, 48), opener(files), "higher than"},
		"too wide":  {image.Pt(65, 64), opener(files), "slice 1 of 2: it is 64 pixels wide"},
		"no size":   {image.Point{}, opener(files), "cannot be"},
		"damaged":   {image.Pt(64, 64), opener([][]byte{files[0], files[1][:99]}), "slice 2 of 2"},
		"lost":      {image.Pt(64, 64), func(int) (io.ReadCloser, error) { return nil, lost }, "lost"},
	} {
		for _, f := range []Format{PNG, JPEG} {
			err := Compose(io.Discard, f, c.size, 2, c.open)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s as %v: got error %v, want %q", name, f, err, c.want)
			}
		}
	}
}

func TestEncodeErrors(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 70_000, 1))
	full := errors.New("the disk is full")
	if err := Encode(io.Discard, img, img.Rect, JPEG); err == nil || !strings.Contains(err.Error(), ".png") {
		t.Errorf("JPEG too wide: got %v, want an error with \".png\"", err)
	}
	if err := Encode(io.Discard, img, img.Rect, PNG); err != nil {
		t.Errorf("wide PNG: got the error %v, want none", err)
	}
	if err := Encode(io.Discard, img, img.Rect, Format(9)); !errors.Is(err, ErrFormat) {
		t.Errorf("unknown format: got %v, want ErrFormat", err)
	}
	if err := Encode(io.Discard, img, image.Rect(0, 0, 1, 2), PNG); err == nil {
		t.Error("part outside the picture: got no error, want one")
	}
	for _, f := range []Format{PNG, JPEG} {
		if err := Encode(failingWriter{full}, img, image.Rect(0, 0, 600, 1), f); !errors.Is(err, full) {
			t.Errorf("%v on a full disk: got %v, want its error", f, err)
		}
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestFormatOf(t *testing.T) {
	for name, want := range map[string]Format{"a.png": PNG, "b/c.PNG": PNG, "a.jpg": JPEG, "a.b.JpEg": JPEG} {
		if got, err := FormatOf(name); err != nil || got != want {
			t.Errorf("%s: got %v, %v; want %v", name, got, err, want)
		}
	}
	for _, name := range []string{"", "png", "a.gif", "a.png.txt", ".jpg/x"} {
		if _, err := FormatOf(name); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: got error %v, want ErrFormat", name, err)
		}
	}
}
