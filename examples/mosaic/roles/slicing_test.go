package roles

import (
	"bytes"
	"image"
	"image/color"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/examples/mosaic/layout"
	"github.com/millrace/millrace/examples/mosaic/picture"
)

// made returns the pixels of a mosaic that the roles make.
func made(t *testing.T, change func(*Request)) *image.RGBA {
	t.Helper()
	var flat *image.RGBA
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(nil)
		w.start(p)
		c := w.submit(p, change)
		if err := c.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.end()
		img, err := picture.Decode(bytes.NewReader(c.deliveries()[0]))
		if err != nil {
			t.Fatal(err)
		}
		flat = image.NewRGBA(img.Bounds())
		for y := range flat.Rect.Dy() {
			for x := range flat.Rect.Dx() {
				flat.Set(x, y, color.RGBAModel.Convert(img.At(x, y)))
			}
		}
	})
	return flat
}

func TestAMosaicHasTheSamePixelsHoweverItIsSliced(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many mosaics")
	}
	for _, scale := range []float64{0, 3, 2.75} {
		for _, tint := range []int{0, layout.MaxTint} {
			for _, reuse := range []int{layout.Once, 80, layout.BestMatch} {
				sliced := func(slices int) *image.RGBA {
					return made(t, func(r *Request) { r.Scale, r.Tint, r.Reuse, r.Slices = scale, tint, reuse, slices })
				}
				rows := 16
				if scale == 0 {
					rows = testRows
				}
				whole, many := sliced(1), sliced(rows)
				if whole.Rect != many.Rect || !bytes.Equal(whole.Pix, many.Pix) {
					t.Errorf("scale %v, tint %d, reuse %d: got other pixels in %d slices than in one", scale, tint, reuse, rows)
				}
			}
		}
	}
}

func TestAScaledMosaicHasTheScaledSize(t *testing.T) {
	b := testPicture().Bounds()
	got := made(t, func(r *Request) { r.Scale, r.Slices = 2.5, 1 }).Bounds().Size()
	want := image.Pt(b.Dx()*250/100/testTile*testTile, b.Dy()*250/100/testTile*testTile)
	if got != want {
		t.Errorf("size at scale 2.5: got %v, want %v", got, want)
	}
}

// A request whose plan is impossible is refused with what to change, whoever sent it.
func TestAnImpossibleScaleFailsTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(nil)
		w.start(p)
		begin := time.Now()
		c := w.submit(p, func(r *Request) { r.Scale = testTile + 1 })
		if err := c.Wait(t.Context()); err == nil || !bytes.Contains([]byte(err.Error()), []byte("a scale of at most 4")) {
			t.Errorf("end of the order: got %v, want an error with the largest scale", err)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("time until the order failed: got %v, want at most %v", took, 2*time.Second)
		}
		p.end()
	})
}

// What a client asks for is what the tiles are chosen with.
func TestTheSettingsOfARequestReachItsLayout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 0)
		p := w.open(nil)
		w.start(p)
		for _, options := range []layout.Options{{Reuse: layout.DefaultReuse}, {Reuse: layout.Once, Tint: 7}, {Reuse: layout.BestMatch, Tint: layout.MaxTint}} {
			c := w.submit(p, func(r *Request) { r.Reuse, r.Tint = options.Reuse, options.Tint })
			if err := c.Order.Wait(t.Context(), func(Progress) error { return nil }); err != nil {
				t.Fatal(err)
			}
			got, err := c.Layout(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			cells, err := layout.Measure(testPicture(), image.Rect(0, 0, testCols*testTile, testRows*testTile), testCols, testRows)
			if err != nil {
				t.Fatal(err)
			}
			want, err := layout.Choose(t.Context(), cells, testLibrary(t), options)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%+v: got the layout %+v, want %+v", options, got, want)
			}
		}
		p.end()
	})
}
