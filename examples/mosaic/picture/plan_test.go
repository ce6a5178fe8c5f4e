package picture

import (
	"image"
	"math"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestAPlanHasAsManyWholeTilesAsFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tile := rapid.IntRange(1, 64).Draw(t, "tile")
		hundredths := rapid.IntRange(1, min(MaxScale, tile)*unity).Draw(t, "hundredths")
		scale := float64(hundredths) / unity
		w, h := rapid.IntRange(1, 9000).Draw(t, "w"), rapid.IntRange(1, 9000).Draw(t, "h")
		p, err := NewPlan(w, h, tile, PlanOptions{Scale: scale})
		if err != nil {
			t.Skip(err)
		}
		for _, side := range [][3]int{{w, p.Cols, p.Crop.Dx()}, {h, p.Rows, p.Crop.Dy()}} {
			pixels, cells, crop := side[0], side[1], side[2]
			scaled := big.NewRat(int64(pixels)*int64(hundredths), unity)
			if used := big.NewRat(int64(cells*tile), 1); used.Cmp(scaled) > 0 || new(big.Rat).Add(used, big.NewRat(int64(tile), 1)).Cmp(scaled) <= 0 {
				t.Fatalf("%d pixels at scale %v: got %d tiles of %d", pixels, scale, cells, tile)
			}
			if off := crop*hundredths - cells*tile*unity; crop > pixels || crop < cells || 2*max(off, -off) > hundredths {
				t.Fatalf("%d tiles of %d at scale %v: got %d pixels of %d, want the nearest to %v", cells, tile, scale, crop, pixels, float64(cells*tile)/scale)
			}
		}
		if scale == unity && p.Crop.Size() != p.Size() {
			t.Fatalf("crop at scale 1: got %v, want %v", p.Crop, p.Size())
		}
	})
}

func TestSlicesAreOfWholeRowsAndAlmostEqual(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tile := rapid.IntRange(1, 64).Draw(t, "tile")
		w, h := rapid.IntRange(tile, 1000).Draw(t, "w"), rapid.IntRange(tile, 1000).Draw(t, "h")
		p, err := NewPlan(w, h, tile, PlanOptions{Slices: rapid.IntRange(1, h/tile).Draw(t, "slices")})
		if err != nil {
			t.Fatal(err)
		}
		next, low, high := 0, math.MaxInt, 0
		for i := range p.Slices {
			first, end := p.SliceRows(i)
			if first != next {
				t.Fatalf("slice %d: got first row %d, want %d", i, first, next)
			}
			next, low, high = end, min(low, end-first), max(high, end-first)
		}
		if next != p.Rows || low < 1 || high-low > 1 {
			t.Fatalf("slices: got the end %d and %d to %d rows; want the end %d and rows that differ by one at most", next, low, high, p.Rows)
		}
	})
}

func TestTheDefaultNumberOfSlicesFollowsTheSize(t *testing.T) {
	for _, c := range []struct{ w, h, tile, want int }{
		{960, 640, 16, DefaultSlices},
		{100, 50, 16, 3},        // one for each row
		{6000, 4000, 16, 8},     // 24 megapixels
		{8000, 6000, 16, 12},    // 48
		{12_500, 8_000, 16, 25}, // 100
		{400_000, 64, 64, 1},
	} {
		p, err := NewPlan(c.w, c.h, c.tile, PlanOptions{})
		if err != nil || p.Slices != c.want {
			t.Errorf("%+v: got %d slices, %v; want %d", c, p.Slices, err, c.want)
		}
	}
}

func TestAPlanThatIsImpossibleSaysWhatToChange(t *testing.T) {
	for _, c := range []struct {
		w, h, tile int
		o          PlanOptions
		want       string
	}{
		{100, 100, 0, PlanOptions{}, "0 pixels wide"},
		{100, 100, 101, PlanOptions{}, "choose smaller tiles or a larger scale"},
		{100, 100, 60, PlanOptions{Scale: 0.5}, "100×100 pixels at scale 0.5 do not hold one tile of 60×60"},
		{0, 0, 1, PlanOptions{}, "do not hold one tile"},
		{100, 100, 10, PlanOptions{Scale: -1}, "a scale of -1 is not possible: choose 0.01 to 64"},
		{100, 100, 10, PlanOptions{Scale: 0.005}, "0.01 to 64"},
		{100, 100, 10, PlanOptions{Scale: 64.5}, "0.01 to 64"},
		{100, 100, 10, PlanOptions{Scale: math.NaN()}, "0.01 to 64"},
		{100, 100, 8, PlanOptions{Scale: 8.01}, "less than a pixel of the picture: choose larger tiles, or a scale of at most 8"},
		{100, 100, 10, PlanOptions{Slices: -1}, "10 rows of tiles"},
		{100, 100, 10, PlanOptions{Slices: 11}, "10 rows of tiles, which cannot be cut into 11 slices"},
		{1025, 1025, 1, PlanOptions{}, "more than 1048576: choose larger tiles or a smaller scale"},
		{8000, 6250, 64, PlanOptions{Scale: 3}, "more than 100 megapixels: choose a smaller scale"},
	} {
		if p, err := NewPlan(c.w, c.h, c.tile, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %+v, %v; want an error with %q", c, p, err, c.want)
		}
	}
	for _, c := range []struct {
		w, h, tile int
		o          PlanOptions
		size       image.Point
	}{
		{1024, 1024, 1, PlanOptions{}, image.Pt(1024, 1024)},
		{100, 100, 8, PlanOptions{Scale: 8}, image.Pt(800, 800)},
		{2500, 2500, 16, PlanOptions{Scale: 4}, image.Pt(10_000, 10_000)},
	} {
		if p, err := NewPlan(c.w, c.h, c.tile, c.o); err != nil || p.Size() != c.size {
			t.Errorf("%+v: got %v, %v; want %v", c, p.Size(), err, c.size)
		}
	}
}
