package layout

import (
	"fmt"
	"image"
	"image/color"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/tiles"
	"github.com/millrace/millrace/internal/suitetest"
)

// The photographs are test data of a module that the example depends on. Those of the library are cut into crops.
var libraryPhotos = []string{
	"smoke/upstream66.jpg", "outofbounds-issue-34.jpg", "hugo-issue-12669.jpg", "metadata-extractor/nikonMakernoteType2b.jpg", "hugo-issue-8996.jpg",
	"metadata-extractor/nikonMakernoteType1.jpg", "metadata-extractor/withUncompressedYCbCrThumbnail3.jpg", "metadata-extractor/manuallyAddedThumbnail.jpg",
}

// photo decodes a photograph of the module's test data.
func photo(t testing.TB, name string) image.Image {
	t.Helper()
	f, err := os.Open(filepath.Join(photoDir(t), name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := picture.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func photoDir(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/bep/imagemeta").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "testdata", "images")
}

var crops = struct {
	sync.Mutex
	made map[[2]int]*tiles.Library
}{made: map[[2]int]*tiles.Library{}}

// cropLibrary is about n tiles, from all library photos.
func cropLibrary(t testing.TB, size, n int) *tiles.Library {
	t.Helper()
	crops.Lock()
	defer crops.Unlock()
	if l := crops.made[[2]int{size, n}]; l != nil {
		return l
	}
	rng := rand.New(rand.NewPCG(7, 8))
	var list []tiles.Tile
	for p, name := range libraryPhotos {
		img := photo(t, name)
		b := img.Bounds()
		for i := range n / len(libraryPhotos) {
			side := min(b.Dx(), b.Dy()) / (4 + rng.IntN(12))
			x, y := b.Min.X+rng.IntN(b.Dx()-side), b.Min.Y+rng.IntN(b.Dy()-side)
			g, err := picture.Average(img, image.Rect(x, y, x+side, y+side), size, size)
			if err != nil {
				t.Fatal(err)
			}
			tile := tiles.Tile{Name: fmt.Sprintf("%d-%04d", p, i), Pix: g.Image().Pix}
			list = append(list, tile)
		}
	}
	l, err := tiles.New(size, list)
	if err != nil {
		t.Fatal(err)
	}
	crops.made[[2]int{size, n}] = l
	return l
}

func measured(t testing.TB, img image.Image, cell int) *Cells {
	t.Helper()
	b := img.Bounds()
	cols, rows := b.Dx()/cell, b.Dy()/cell
	c, err := Measure(img, image.Rect(0, 0, cols*cell, rows*cell).Add(b.Min), cols, rows)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// inputs are the photographs to make mosaics of, and cells that give each some ten thousand.
var inputs = []struct {
	name string
	cell int
}{
	{"bep/sunrise.jpg", 8}, {"mushroom.jpg", 4}, {"metadata-extractor/withUncompressedYCbCrThumbnail2.jpg", 5}, {"metadata-extractor/withExifAndIptc.jpg", 5},
}

// laidAs lays the tiles as an option says.
func laidAs(t testing.TB, c *Cells, library *tiles.Library, o Options) image.Image {
	t.Helper()
	l, err := Choose(t.Context(), c, library, o)
	if err != nil {
		t.Fatal(err)
	}
	img, err := l.Lay(library)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

func scored(t testing.TB, original, mosaic image.Image, cell int) Score {
	t.Helper()
	s, err := Compare(original, mosaic, cell)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The defaults are better than every tile equally often, and about as near as the best match. The score says so.
func TestQualityOnPhotographs(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many mosaics of photographs")
	}
	library := cropLibrary(t, 16, 800)
	for _, in := range inputs[:suitetest.Size(1, len(inputs))] {
		img := photo(t, in.name)
		c := measured(t, img, in.cell)
		best := scored(t, img, laidAs(t, c, library, Options{Reuse: BestMatch}), in.cell)
		usual := scored(t, img, laidAs(t, c, library, Options{Reuse: DefaultReuse}), in.cell)
		tinted := scored(t, img, laidAs(t, c, library, Options{Reuse: DefaultReuse, Tint: DefaultTint}), in.cell)
		even := scored(t, img, laidAs(t, c, library, Options{Reuse: Once}), in.cell)
		t.Logf("%s, %d cells, %d tiles: best match %.4f, usual %.4f, tinted %.4f, even %.4f", in.name, c.Cols*c.Rows, library.Len(), best, usual, tinted, even)
		if usual.Total() > 1.2*best.Total() || tinted.Total() >= usual.Total() || tinted.Outliers > usual.Outliers {
			t.Errorf("%s: got %.4f by default without tint, want at most a fifth more than %.4f of the best match, and more than %.4f with the tint", in.name, usual, best, tinted)
		}
		if even.Total() < usual.Total() {
			t.Errorf("%s: got %.4f with every tile equally often, want more than %.4f", in.name, even, usual)
		}
	}
}

// The specks of a mosaic are what one sees first. The score must not prefer a mosaic with a few of them because its other cells are a
// little nearer.
func TestTheScorePrefersAMosaicWithoutSpecks(t *testing.T) {
	const n, cell = 40, 4
	original, calm, specks := image.NewRGBA(image.Rect(0, 0, n*cell, n*cell)), image.NewRGBA(image.Rect(0, 0, n*cell, n*cell)), image.NewRGBA(image.Rect(0, 0, n*cell, n*cell))
	rng := rand.New(rand.NewPCG(1, 2))
	speck := 0
	for i := range n * n {
		r := image.Rect(i%n*cell, i/n*cell, i%n*cell+cell, i/n*cell+cell)
		grey := uint8(100 + rng.IntN(60))
		fill(original, r, grey, grey, grey)
		fill(calm, r, grey+6, grey+6, grey+6) // all cells are a little lighter
		fill(specks, r, grey+3, grey+3, grey+3)
		if rng.IntN(40) == 0 {
			fill(specks, r, grey-40, grey+40, grey-40)
			speck++
		}
	}
	a, b := scored(t, original, calm, cell), scored(t, original, specks, cell)
	if want := float64(speck) / (n * n); math.Abs(b.Outliers-want) > 1e-9 || a.Outliers != 0 {
		t.Errorf("outliers: got %.4f and %.4f, want 0 and %.4f", a.Outliers, b.Outliers, want)
	}
	if b.Near >= a.Near {
		t.Fatalf("sub-cells: got %.4f with specks and %.4f without; the test wants the opposite order", b.Near, a.Near)
	}
	if b.Total() <= a.Total() {
		t.Errorf("score: got %.4f with specks, want more than %.4f without", b.Total(), a.Total())
	}
	if same := scored(t, original, original, cell); same != (Score{}) {
		t.Errorf("a picture and itself: got %v, want zeros", same)
	}
}

func fill(img *image.RGBA, r image.Rectangle, red, green, blue uint8) {
	for y := r.Min.Y; y < r.Max.Y; y++ {
		for x := r.Min.X; x < r.Max.X; x++ {
			img.SetRGBA(x, y, color.RGBA{red, green, blue, 255})
		}
	}
}

func TestCompareRefusesCellsItCannotMeasure(t *testing.T) {
	large, small := image.NewRGBA(image.Rect(0, 0, 40, 40)), image.NewRGBA(image.Rect(0, 0, 20, 20))
	for _, c := range []struct {
		original, mosaic image.Image
		cell             int
	}{{large, large, 2}, {large, large, 0}, {large, large, -1}, {large, large, 41}, {large, small, 4}} {
		if _, err := Compare(c.original, c.mosaic, c.cell); err == nil {
			t.Errorf("cells of %d pixels: got no error", c.cell)
		}
	}
}

// Cells that are nearly white once alternated between bluish and orange tiles, which make up for each other. Between them, there are
// tiles that are nearly as white.
func TestNearlyWhiteCellsDoNotAlternateInHue(t *testing.T) {
	var list []tiles.Tile
	add := func(name string, r, g, b uint8) {
		img := image.NewRGBA(image.Rect(0, 0, 3, 3))
		fill(img, img.Rect, r, g, b)
		list = append(list, tiles.Tile{Name: name, Pix: img.Pix})
	}
	for i := range 12 {
		add(fmt.Sprintf("bluish-%02d", i), 205, 228, 250-uint8(i))
		add(fmt.Sprintf("orange-%02d", i), 252-uint8(i), 226, 205)
		add(fmt.Sprintf("nearly-white-%02d", i), 232, 238-uint8(i/3), 226)
	}
	library, err := tiles.New(3, list)
	if err != nil {
		t.Fatal(err)
	}
	c := &Cells{Cols: 40, Rows: 40, Sub: 1, Colours: make([]Colour, 1600)}
	for i := range c.Colours {
		c.Colours[i] = Colour{230, 228, 232}
	}
	count := 0
	for _, tile := range chosen(t, c, library, DefaultReuse).Tiles {
		if !strings.HasPrefix(library.Tile(int(tile)).Name, "nearly-white") {
			count++
		}
	}
	if count > 300 {
		t.Errorf("got %d of 1,600 cells with bluish or orange tiles, want at most 300", count)
	}
}
