package layout

import (
	"context"
	"errors"
	"fmt"
	"image"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// chosen chooses the tiles.
func chosen(t testing.TB, c *Cells, library *tiles.Library, r int) *Layout {
	t.Helper()
	l, err := Choose(t.Context(), c, library, Options{Reuse: r})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// randomLibrary has n tiles of noise around random colours.
func randomLibrary(t testing.TB, size, n int, seed uint64) *tiles.Library {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	list := make([]tiles.Tile, n)
	for i := range list {
		base := [3]int{rng.IntN(256), rng.IntN(256), rng.IntN(256)}
		list[i] = tiles.Tile{Name: fmt.Sprint(i)}
		for range size * size {
			for _, v := range base {
				list[i].Pix = append(list[i].Pix, uint8(min(max(v+rng.IntN(61)-30, 0), 255)))
			}
			list[i].Pix = append(list[i].Pix, 255)
		}
	}
	l, err := tiles.New(size, list)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// gradient is the colours of a smooth picture with a flat half, which is where tiles would be repeated.
func gradient(cols, rows, sub int) *Cells {
	c := &Cells{Cols: cols, Rows: rows, Sub: sub, Colours: make([]Colour, cols*rows*sub*sub)}
	for y := range rows * sub {
		for x := range cols * sub {
			v := uint8(200 * y / (rows * sub))
			c.Colours[c.at(x, y)] = Colour{40, 60 + v/2, v}
			if x > cols*sub/2 {
				c.Colours[c.at(x, y)] = Colour{90, 120, 200}
			}
		}
	}
	return c
}

func TestNoTileTwiceWithinTheRadius(t *testing.T) {
	if testing.Short() {
		t.Skip("lays large mosaics")
	}
	library, c := randomLibrary(t, 6, 200, 1), gradient(60, 40, 3)
	for _, r := range []int{0, 10, 50, 90, 100} {
		l := chosen(t, c, library, r)
		radius := 3 - float64(r)/100
		if radius < 2 {
			t.Fatalf("%d per cent: got a radius of %v, want at least 2", r, radius)
		}
		for i, a := range l.Tiles {
			for k, b := range l.Tiles[:i] {
				d := math.Hypot(float64(i%60-k%60), float64(i/60-k/60))
				if a == b && d <= radius {
					t.Fatalf("%d per cent: cells %d and %d: got tile %d in both, %.2f apart, want more than %.2f", r, k, i, a, d, radius)
				}
			}
		}
	}
}

// In a library that is too small for the radius tiles are nearer, but from 9 tiles not beside each other.
func TestSmallLibraries(t *testing.T) {
	for n := 1; n < 40; n++ {
		library, c := randomLibrary(t, 3, n, uint64(n)), gradient(9, 7, 3)
		for _, r := range []int{Once, DefaultReuse, BestMatch} {
			l := chosen(t, c, library, r)
			if r == Once && l.Distinct() != min(n, 63) {
				t.Errorf("%d tiles: got %d used, want all", n, l.Distinct())
			}
			if n < 9 {
				continue
			}
			for i := 1; i < len(l.Tiles); i++ {
				if i%9 > 0 && l.Tiles[i] == l.Tiles[i-1] {
					t.Errorf("%d tiles, %d per cent: got the same tile in cells %d and %d, want different ones", n, r, i-1, i)
				}
			}
		}
	}
}

func TestLessReuseUsesMoreTiles(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many mosaics")
	}
	for name, library := range map[string]*tiles.Library{"photographs": cropLibrary(t, 16, 800), "noise": randomLibrary(t, 6, 300, 1)} {
		c := gradient(36, 24, 3)
		last := library.Len() + 1
		for percent := 0; percent <= 100; percent += 25 {
			n := chosen(t, c, library, percent).Distinct()
			if n > last {
				t.Errorf("%s, %d per cent: got %d tiles, want no more than the %d of %d per cent", name, percent, n, last, percent-25)
			}
			last = n
		}
		if last > library.Len()/2 {
			t.Errorf("%s: best match: got %d of %d tiles, want at most half", name, last, library.Len())
		}
	}
}

func TestEveryTileOnce(t *testing.T) {
	for _, n := range []int{50, 599, 600, 601, 1000} {
		library, c := randomLibrary(t, 3, n, 2), gradient(30, 20, 3)
		l := chosen(t, c, library, Once)
		uses := make([]int, n)
		for _, tile := range l.Tiles {
			uses[tile]++
		}
		// One more where the radius leaves nothing else.
		if most := (600+n-1)/n + 1; n < 600 && slices.Max(uses) > most || n >= 600 && slices.Max(uses) > 1 {
			t.Errorf("%d tiles: got one %d times, want it %d times", n, slices.Max(uses), (600+n-1)/n)
		}
		if n <= 600 && slices.Min(uses) == 0 {
			t.Errorf("%d tiles: got one that is used nowhere, want each at least once", n)
		}
	}
}

func TestEqualOnAnyNumberOfProcessors(t *testing.T) {
	if testing.Short() {
		t.Skip("lays large mosaics")
	}
	library, c := cropLibrary(t, 16, 800), gradient(70, 50, 3)
	for _, r := range []int{Once, DefaultReuse, BestMatch} {
		var all []*Layout
		for _, n := range []int{1, 4} {
			old := runtime.GOMAXPROCS(n)
			all = append(all, chosen(t, c, library, r))
			runtime.GOMAXPROCS(old)
		}
		if !slices.Equal(all[0].Tiles, all[1].Tiles) {
			t.Errorf("%d per cent: got other tiles with 4 processors than with 1, want the same", r)
		}
	}
}

// An edge within a cell is met by a tile that has it, although the means of both tiles are right.
func TestTilesFollowEdges(t *testing.T) {
	const size = 6
	half := func(name string, dark func(x, y int) bool) tiles.Tile {
		tile := tiles.Tile{Name: name}
		for i := range size * size {
			v := uint8(230)
			if dark(i%size, i/size) {
				v = 30
			}
			tile.Pix = append(tile.Pix, v, v, v, 255)
		}
		return tile
	}
	library, err := tiles.New(size, []tiles.Tile{
		half("bottom", func(_, y int) bool { return y >= 3 }), half("left", func(x, _ int) bool { return x < 3 }),
		half("right", func(x, _ int) bool { return x >= 3 }), half("top", func(_, y int) bool { return y < 3 }),
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range library.Len() {
		img := &image.RGBA{Pix: library.Tile(i).Pix, Stride: 4 * size, Rect: image.Rect(0, 0, size, size)}
		c, err := Measure(img, img.Rect, 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		if l := chosen(t, c, library, BestMatch); int(l.Tiles[0]) != i {
			t.Errorf("%s: got %s, want the same", library.Tile(i).Name, library.Tile(int(l.Tiles[0])).Name)
		}
	}
}

// The mean of a flat area is right, although no tile has its colour.
func TestNeighboursMakeUpForErrors(t *testing.T) {
	var list []tiles.Tile
	for i := range 40 {
		v := uint8(60) // dark, or light
		if i%2 > 0 {
			v = 190
		}
		tile := tiles.Tile{Name: fmt.Sprint(i), Pix: slices.Repeat([]byte{v, v, v + uint8(i%20/2), 255}, 9)}
		list = append(list, tile)
	}
	library, err := tiles.New(3, list)
	if err != nil {
		t.Fatal(err)
	}
	c := &Cells{Cols: 40, Rows: 40, Sub: 3, Colours: slices.Repeat([]Colour{{110, 110, 110}}, 40*40*9)}
	l := chosen(t, c, library, BestMatch)
	light := 0
	for _, tile := range l.Tiles {
		if library.Tile(int(tile)).Pix[0] > 100 {
			light++
		}
	}
	// A choice of the nearest for each cell alone takes dark tiles only.
	if light < 400 || light > 800 {
		t.Errorf("got %d light tiles of %d, want 400 to 800", light, len(l.Tiles))
	}
}

func TestChooseAnyCellsFromAnyLibrary(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cols, rows := rapid.IntRange(1, 12).Draw(rt, "cols"), rapid.IntRange(1, 12).Draw(rt, "rows")
		c := &Cells{Cols: cols, Rows: rows, Sub: rapid.SampledFrom([]int{1, 3}).Draw(rt, "sub")}
		for range cols * rows * c.Sub * c.Sub {
			v := rapid.Uint32Range(0, 1<<24-1).Draw(rt, "colour")
			c.Colours = append(c.Colours, Colour{uint8(v), uint8(v >> 8), uint8(v >> 16)})
		}
		library := randomLibrary(t, rapid.IntRange(1, 4).Draw(rt, "size"), rapid.IntRange(1, 60).Draw(rt, "tiles"), rapid.Uint64().Draw(rt, "seed"))
		o := Options{Reuse: rapid.IntRange(0, 100).Draw(rt, "reuse"), Tint: rapid.IntRange(0, MaxTint).Draw(rt, "tint")}
		l, err := Choose(t.Context(), c, library, o)
		if err != nil {
			rt.Fatal(err)
		}
		if _, err := l.Lay(library); err != nil {
			rt.Fatal(err)
		}
	})
}

func TestChooseEnds(t *testing.T) {
	library, c := randomLibrary(t, 3, 50, 1), gradient(30, 20, 3)
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if _, err := Choose(ctx, c, library, Options{}); !errors.Is(err, enough) {
		t.Errorf("cancelled: got error %v, want the cause", err)
	}
	if _, err := Choose(t.Context(), c, library, Options{Tint: 41}); err == nil {
		t.Error("tint of 41 per cent: got no error, want one")
	}
}

func TestMeasureRefuses(t *testing.T) {
	img := image.NewGray(image.Rect(0, 0, 10, 10))
	for _, c := range [][2]int{{0, 1}, {1, -1}, {11, 1}, {MaxCells, 2}, {math.MaxInt, math.MaxInt}} {
		if _, err := Measure(img, img.Rect, c[0], c[1]); err == nil {
			t.Errorf("%d×%d cells of 10×10 pixels: got no error, want one", c[0], c[1])
		}
	}
}
