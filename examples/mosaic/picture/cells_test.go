package picture

import (
	"image"
	"image/color"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// pixelLight is the linear light of a pixel, over white, by image/color and
// float64 alone.
func pixelLight(img image.Image, x, y int) Linear {
	light := func(v float64) float64 {
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	if c, ok := img.At(x, y).(color.YCbCr); ok {
		r, g, b := color.YCbCrToRGB(c.Y, c.Cb, c.Cr)
		return Linear{light(float64(r) / 255), light(float64(g) / 255), light(float64(b) / 255)}
	}
	full := 255.0
	var r, g, b, a float64
	switch c := img.At(x, y).(type) {
	case color.NRGBA:
		r, g, b, a = float64(c.R), float64(c.G), float64(c.B), float64(c.A)
		r, g, b = r*a/full, g*a/full, b*a/full
	case color.NRGBA64:
		full = 65535
		r, g, b, a = float64(c.R), float64(c.G), float64(c.B), float64(c.A)
		r, g, b = r*a/full, g*a/full, b*a/full
	case color.CMYK:
		cr, cg, cb := color.CMYKToRGB(c.C, c.M, c.Y, c.K)
		r, g, b, a = float64(cr), float64(cg), float64(cb), full
	default:
		full = 65535
		ir, ig, ib, ia := c.RGBA()
		r, g, b, a = float64(ir), float64(ig), float64(ib), float64(ia)
	}
	over := func(v float64) float64 { return light(math.Round(v+full-a) / full) }
	return Linear{over(r), over(g), over(b)}
}

func near(a, b Linear, tolerance float64) bool {
	return math.Abs(a.R-b.R) <= tolerance && math.Abs(a.G-b.G) <= tolerance && math.Abs(a.B-b.B) <= tolerance
}

func TestCellsAreExact(t *testing.T) {
	for name, img := range photos(53, 41) {
		t.Run(name, func(t *testing.T) {
			const tile = 7
			r := image.Rect(3, 5, 3+6*tile, 5+4*tile)
			g, err := Cells(img, r, tile)
			if err != nil {
				t.Fatal(err)
			}
			if g.Cols != 6 || g.Rows != 4 || len(g.Means) != 24 {
				t.Fatalf("grid: got %d×%d with %d means, want 6×4 with 24", g.Cols, g.Rows, len(g.Means))
			}
			for i, got := range g.Means {
				var want Linear
				for k := range tile * tile {
					p := pixelLight(img, r.Min.X+i%6*tile+k%tile, r.Min.Y+i/6*tile+k/tile)
					want.R += p.R / (tile * tile)
					want.G += p.G / (tile * tile)
					want.B += p.B / (tile * tile)
				}
				tolerance := 1e-10
				if name == "custom" {
					tolerance = 2e-5 // rounded to the alpha before we see it
				}
				if !near(got, want, tolerance) {
					t.Fatalf("cell %d: got %v, want %v", i, got, want)
				}
			}
		})
	}
}

// A cell measures the same to the last bit in the whole picture, in a slice and
// in a picture that is stored turned.
func TestCellsDoNotDependOnStorageOrSlicing(t *testing.T) {
	all := photos(61, 47)
	rapid.Check(t, func(t *rapid.T) {
		img := all[rapid.SampledFrom([]string{"YCbCr420", "YCbCr410", "NRGBA", "Paletted", "NRGBA64"}).Draw(t, "kind")]
		o := orientation(rapid.IntRange(1, 8).Draw(t, "orientation"))
		seen := turn(img, o)
		tile := rapid.IntRange(1, 12).Draw(t, "tile")
		b := seen.Bounds()
		p, err := NewPlan(b.Dx(), b.Dy(), tile, &PlanOptions{Slices: rapid.IntRange(1, b.Dy()/tile).Draw(t, "slices")})
		if err != nil {
			t.Fatal(err)
		}
		whole, err := Cells(seen, p.Crop, tile)
		if err != nil {
			t.Fatal(err)
		}
		flat, err := Cells(upstoodSame(seen), p.Crop, tile)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(whole.Means, flat.Means) {
			t.Fatal("cells of a turned picture: got others, want those of its upright copy")
		}
		var joined []Linear
		for i := range p.Slices {
			first, end := p.SliceRows(i)
			g, err := Cells(seen, image.Rect(0, first*tile, p.Crop.Dx(), end*tile), tile)
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

// upstoodSame copies a picture upright without changing its depth.
func upstoodSame(img image.Image) image.Image {
	b := img.Bounds()
	if deep(img) {
		dst := image.NewNRGBA64(b)
		for y := range b.Dy() {
			for x := range b.Dx() {
				dst.SetNRGBA64(x, y, img.At(x, y).(color.NRGBA64))
			}
		}
		return dst
	}
	dst := image.NewRGBA(b)
	block := make([]rgb8, b.Dx()*b.Dy())
	readBlock(img, b, block, row8)
	for i, p := range block {
		dst.SetRGBA(i%b.Dx(), i/b.Dx(), color.RGBA{p[0], p[1], p[2], 255})
	}
	return dst
}

func TestAverageSharesPixelsByArea(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.IntRange(1, 40).Draw(t, "w"), rapid.IntRange(1, 40).Draw(t, "h")
		cols, rows := rapid.IntRange(1, w).Draw(t, "cols"), rapid.IntRange(1, h).Draw(t, "rows")
		img := image.NewNRGBA(image.Rect(0, 0, w, h))
		noisy(uint64(w*h+cols), img.Pix)
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
						p := pixelLight(img, x, y)
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

// The rows of cells are shared between goroutines: each measures its own as one that measures all.
func TestStripesAreMeasuredAsTheWhole(t *testing.T) {
	measured := func(img image.Image, cols, rows int, edges ...int) []Linear {
		means := make([]Linear, cols*rows)
		for i := 1; i < len(edges); i++ {
			averageRows(img, img.Bounds(), cols, rows, edges[i-1], edges[i], row8, light8[:], func(x, y int, mean Linear) { means[y*cols+x] = mean })
		}
		return means
	}
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.IntRange(1, 20).Draw(t, "w"), rapid.IntRange(1, 60).Draw(t, "h")
		img := image.NewGray(image.Rect(0, 0, w, h))
		noisy(uint64(w*h), img.Pix)
		cols, rows := rapid.IntRange(1, w).Draw(t, "cols"), rapid.IntRange(1, h).Draw(t, "rows")
		a := rapid.IntRange(0, rows).Draw(t, "a")
		b := rapid.IntRange(a, rows).Draw(t, "b")
		if !slices.Equal(measured(img, cols, rows, 0, a, b, rows), measured(img, cols, rows, 0, rows)) {
			t.Fatalf("%d×%d pixels in %d×%d cells, cut at rows %d and %d: got other means than of the whole", w, h, cols, rows, a, b)
		}
	})
	large := image.NewGray(image.Rect(0, 0, 2000, 2*stripePixels/2000))
	noisy(1, large.Pix)
	got, err := Average(large, large.Rect, 301, 200)
	if err != nil || !slices.Equal(got.Means, measured(large, 301, 200, 0, 200)) {
		t.Errorf("large picture: got other means or %v, want those of one goroutine", err)
	}
}

// Rows wider than the conversion buffer are measured piece by piece, and a
// piece may end within a cell or a pixel that two cells share.
func TestAverageOfWideRows(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 3*chunk+17, 2))
	for x := range img.Rect.Dx() {
		img.Pix[x] = uint8(x)
		img.Pix[img.Stride+x] = uint8(x)
	}
	for _, cols := range []int{1, 2, 3, 100, chunk + 1, 3*chunk + 16, 3*chunk + 17} {
		g, err := Average(img, img.Bounds(), cols, 1)
		if err != nil {
			t.Fatal(err)
		}
		w := img.Rect.Dx()
		for i, m := range g.Means {
			lo, hi := float64(i*w)/float64(cols), float64((i+1)*w)/float64(cols)
			want := 0.0
			for x := int(lo); x < w && float64(x) < hi; x++ {
				want += Decode8(uint8(x)) * (math.Min(hi, float64(x+1)) - math.Max(lo, float64(x)))
			}
			if want /= hi - lo; math.Abs(m.R-want) > 1e-9 {
				t.Fatalf("cell %d of %d: got %v, want %v", i, cols, m.R, want)
			}
		}
	}
}

func TestCellsRefuse(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 32, 32))
	for name, err := range map[string]error{
		"outside":   second(Cells(img, image.Rect(0, 0, 48, 32), 16)),
		"no tile":   second(Cells(img, img.Rect, 0)),
		"fraction":  second(Cells(img, img.Rect, 12)),
		"empty":     second(Cells(img, image.Rectangle{}, 1)),
		"too many":  second(Average(img, img.Rect, 33, 1)),
		"no column": second(Average(img, img.Rect, 0, 1)),
	} {
		if err == nil {
			t.Errorf("%s: got no error, want one", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func BenchmarkCells(b *testing.B) {
	for name, img := range photos(4000, 3000) {
		if name == "custom" {
			continue
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := Cells(img, image.Rect(0, 0, 4000, 2992), 16); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(4000*2992*float64(b.N)/b.Elapsed().Seconds()/1e6, "MP/s")
		})
	}
}
