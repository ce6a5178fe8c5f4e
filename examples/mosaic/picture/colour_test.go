package picture

import (
	"image"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestTransferFunction(t *testing.T) {
	// Values of IEC 61966-2-1 worked out by hand: black, white, the end of the
	// straight piece, and the grey that reflects about a fifth.
	for v, want := range map[uint8]float64{0: 0, 255: 1, 10: 0.0030352698354883, 11: 0.0033465357638992, 128: 0.2158605001138992} {
		if got := Decode8(v); math.Abs(got-want) > 1e-12 {
			t.Errorf("Decode8(%d) = %.16f, want %.16f", v, got, want)
		}
	}
	for i := range 256 {
		v := uint8(i)
		if got := Encode8(Decode8(v)); got != v {
			t.Errorf("Encode8(Decode8(%d)): got %d, want %d", v, got, v)
		}
		// The boundary between two values lies half way between them in sRGB.
		if i > 0 {
			mid := transfer((float64(i) - 0.5) / 255)
			if Encode8(mid*(1-1e-9)) != v-1 || Encode8(mid*(1+1e-9)) != v {
				t.Errorf("Encode8 around the boundary of %d and %d: got another value, want the nearest", v-1, v)
			}
		}
	}
	if Encode8(-1) != 0 || Encode8(2) != 255 || Encode8(math.NaN()) != 0 {
		t.Error("Encode8 outside 0 to 1: got another value, want 0 or 255")
	}
}

// transfer is the electro-optical transfer function of IEC 61966-2-1.
func transfer(v float64) float64 {
	if v <= 0.04045 {
		return v / 12.92
	}
	return math.Pow((v+0.055)/1.055, 2.4)
}

// pixelLight is the linear light of a pixel, by float64 alone.
func pixelLight(img *image.RGBA, x, y int) Linear {
	p := at8(img, x, y)
	return Linear{transfer(float64(p[0]) / 255), transfer(float64(p[1]) / 255), transfer(float64(p[2]) / 255)}
}

func near(a, b Linear, tolerance float64) bool {
	return math.Abs(a.R-b.R) <= tolerance && math.Abs(a.G-b.G) <= tolerance && math.Abs(a.B-b.B) <= tolerance
}

func TestAverageSharesPixelsByArea(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.IntRange(1, 40).Draw(t, "w"), rapid.IntRange(1, 40).Draw(t, "h")
		cols, rows := rapid.IntRange(1, w).Draw(t, "cols"), rapid.IntRange(1, h).Draw(t, "rows")
		img := image.NewNRGBA(image.Rect(0, 0, w, h))
		noisy(uint64(w*h+cols), img.Pix)
		flat := OverWhite(img)
		g, err := Average(img, img.Bounds(), cols, rows)
		if err != nil {
			t.Fatal(err)
		}
		if len(g.Means) != cols*rows {
			t.Fatalf("means of %d×%d cells: got %d, want %d", cols, rows, len(g.Means), cols*rows)
		}
		overlap := func(cell, cells, px, pixels int) float64 {
			lo := math.Max(float64(cell)/float64(cells), float64(px)/float64(pixels))
			hi := math.Min(float64(cell+1)/float64(cells), float64(px+1)/float64(pixels))
			return math.Max(0, hi-lo) * float64(cells)
		}
		var mean Linear
		for i, got := range g.Means {
			var want Linear
			for y := range h {
				for x := range w {
					k := overlap(i%cols, cols, x, w) * overlap(i/cols, rows, y, h)
					if k > 0 {
						p := pixelLight(flat, x, y)
						want.R, want.G, want.B = want.R+k*p.R, want.G+k*p.G, want.B+k*p.B
					}
				}
			}
			if !near(got, want, 1e-9) {
				t.Fatalf("cell %d: got %v, want %v", i, got, want)
			}
			n := float64(len(g.Means))
			mean.R, mean.G, mean.B = mean.R+got.R/n, mean.G+got.G/n, mean.B+got.B/n
		}
		one, err := Average(img, img.Bounds(), 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		if !near(mean, one.Means[0], 1e-10) {
			t.Fatalf("mean of the cells: got %v, want that of the picture, %v", mean, one.Means[0])
		}
	})
}

// A cell measures the same to the last bit in the whole picture and in a slice.
func TestCellsDoNotDependOnSlicing(t *testing.T) {
	img := OverWhite(photos(61, 47)["YCbCr420"])
	rapid.Check(t, func(t *rapid.T) {
		tile := rapid.IntRange(1, 12).Draw(t, "tile")
		p, err := NewPlan(61, 47, tile, PlanOptions{Slices: rapid.IntRange(1, 47/tile).Draw(t, "slices")})
		if err != nil {
			t.Fatal(err)
		}
		whole, err := Average(img, p.Crop, p.Cols, p.Rows)
		if err != nil {
			t.Fatal(err)
		}
		var joined []Linear
		for i := range p.Slices {
			first, end := p.SliceRows(i)
			g, err := Average(img, image.Rect(0, first*tile, p.Crop.Dx(), end*tile), p.Cols, end-first)
			if err != nil {
				t.Fatal(err)
			}
			joined = append(joined, g.Means...)
		}
		if !slices.Equal(whole.Means, joined) {
			t.Fatal("cells of slices: got others, want those of the whole picture")
		}
	})
}

func TestAverageRefuses(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 32, 32))
	for name, c := range map[string]struct {
		r    image.Rectangle
		cols int
	}{"outside": {image.Rect(0, 0, 48, 32), 16}, "empty": {image.Rectangle{}, 1}, "too many": {img.Rect, 33}, "no column": {img.Rect, 0}} {
		if _, err := Average(img, c.r, c.cols, 1); err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}

func TestFitKeepsTheShape(t *testing.T) {
	for size, want := range map[image.Point]image.Point{{X: 300, Y: 200}: {X: 30, Y: 20}, {X: 20, Y: 30}: {X: 20, Y: 30}, {X: 1, Y: 900}: {X: 1, Y: 30}} {
		if got := Fit(image.NewRGBA(image.Rectangle{Max: size}), 30).Rect.Size(); got != want {
			t.Errorf("%v: got %v, want %v", size, got, want)
		}
	}
}
