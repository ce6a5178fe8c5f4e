package layout

import (
	"fmt"
	"image"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// scoreFolder names a folder for the comparison with other programs.
const scoreFolder = "MILLRACE_MOSAIC_SCORE"

// TestScoreOfOtherPrograms compares mosaics that any programs have made of the photographs of TestQualityOnPhotographs. The first run
// with
//
//	MILLRACE_MOSAIC_SCORE=DIR go test -run TestScoreOfOtherPrograms -v ./examples/mosaic/layout
//
// writes the photographs, DIR/0.png and so on, which a program makes mosaics of with the pictures in DIR/tiles: one of 16 pixels for
// every cell of as many pixels as the log says, named DIR/0.PROGRAM.png. Further runs compare what is there.
func TestScoreOfOtherPrograms(t *testing.T) {
	dir := os.Getenv(scoreFolder)
	if dir == "" {
		t.Skip("needs mosaics of other programs in a folder that " + scoreFolder + " names")
	}
	library := cropLibrary(t, 16, 800)
	if _, err := os.Stat(filepath.Join(dir, "tiles")); err != nil {
		for i := range library.Len() {
			save(t, filepath.Join(dir, "tiles", library.Tile(i).Name+".png"), tileImage(library, i))
		}
	}
	features := make([]*Cells, library.Len())
	for i := range features {
		features[i] = measured(t, tileImage(library, i), library.Size())
	}
	for n, in := range inputs {
		img := photo(t, in.name)
		c := measured(t, img, in.cell)
		r := image.Rect(0, 0, c.Cols*in.cell, c.Rows*in.cell).Add(img.Bounds().Min)
		if path := filepath.Join(dir, fmt.Sprint(n, ".png")); !exists(path) {
			f := created(t, path)
			if err := picture.Encode(f, img, r, picture.PNG); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		t.Logf("%d.png is %s: %d×%d cells of %d pixels", n, in.name, c.Cols, c.Rows, in.cell)
		files, err := filepath.Glob(filepath.Join(dir, fmt.Sprint(n, ".*.*")))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			got := opened(t, path)
			if want := image.Pt(c.Cols, c.Rows).Mul(library.Size()); got.Bounds().Size() != want {
				t.Errorf("%s: got a mosaic of %v pixels, want %v", path, got.Bounds().Size(), want)
				continue
			}
			t.Logf("%-24s %v", filepath.Base(path), score(c, measured(t, got, library.Size()), features))
		}
	}
}

// scores are the figures of a mosaic of any program.
type scores struct {
	figures
	close float64 // share of cells with the same tile within 2 cells
}

func (s scores) String() string {
	return fmt.Sprintf("sub-cells %.4f, blurred %.4f, %3d tiles, the same within 2 cells: %4.1f %%", s.fine, s.blurred, s.distinct, 100*s.close)
}

// score compares the cells of a photograph with those of its mosaic, whose tiles it recognises by their features.
func score(want, got *Cells, features []*Cells) scores {
	a, b := planeOf(want), planeOf(got)
	l := &Layout{Cells: got, Tiles: make([]int32, got.Cols*got.Rows)}
	for i := range l.Tiles {
		least := 1 << 30
		for n, f := range features {
			sum := 0
			for k, c := range f.Colours {
				for ch := range c {
					d := int(c[ch]) - int(got.Cell(i)[k][ch])
					sum += d * d
				}
			}
			if sum < least {
				least, l.Tiles[i] = sum, int32(n)
			}
		}
	}
	near := 0
	for i, tile := range l.Tiles {
		if l.near(i%got.Cols, i/got.Cols, tile) {
			near++
		}
	}
	return scores{figures{difference(a, b), difference(a.blurred(3), b.blurred(3)), l.Distinct()}, float64(near) / float64(len(l.Tiles))}
}

// near reports whether a tile lies within 2 cells of a place, too.
func (l *Layout) near(x, y int, tile int32) bool {
	for v := max(y-2, 0); v <= min(y+2, l.Cells.Rows-1); v++ {
		for u := max(x-2, 0); u <= min(x+2, l.Cells.Cols-1); u++ {
			if (u != x || v != y) && (u-x)*(u-x)+(v-y)*(v-y) <= 4 && l.Tiles[v*l.Cells.Cols+u] == tile {
				return true
			}
		}
	}
	return false
}

func planeOf(c *Cells) plane {
	p := plane{w: c.Cols * 3, h: c.Rows * 3, px: make([][3]float64, c.Cols*c.Rows*9)}
	for i := range c.Cols * c.Rows {
		for k, colour := range c.Cell(i) {
			p.px[(i/c.Cols*3+k/3)*p.w+i%c.Cols*3+k%3] = linear(colour)
		}
	}
	return p
}

func tileImage(l *tiles.Library, i int) *image.RGBA {
	return &image.RGBA{Pix: l.Tile(i).Pix, Stride: 4 * l.Size(), Rect: image.Rect(0, 0, l.Size(), l.Size())}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func created(t *testing.T, path string) *os.File {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func save(t *testing.T, path string, img image.Image) {
	t.Helper()
	f := created(t, path)
	if err := png.Encode(f, img); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func opened(t *testing.T, path string) image.Image {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := picture.Decode(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return img
}

// The figures of pictures are those of the layouts they were made of.
func TestScoresOfPicturesAreThoseOfLayouts(t *testing.T) {
	library := cropLibrary(t, 16, 800)
	features := make([]*Cells, library.Len())
	for i := range features {
		features[i] = measured(t, tileImage(library, i), library.Size())
	}
	c := measured(t, photo(t, inputs[1].name), 4*inputs[1].cell)
	usual := chosen(t, c, library, DefaultReuse)
	out := image.NewRGBA(image.Rect(0, 0, 16*c.Cols, 16*c.Rows))
	for i, n := range usual.Tiles {
		tile := tileImage(library, int(n))
		for y := range 16 {
			copy(out.Pix[out.PixOffset(i%c.Cols*16, i/c.Cols*16+y):], tile.Pix[y*64:y*64+64])
		}
	}
	got, want := score(c, measured(t, out, 16), features), judge(t, usual, library)
	if got.figures != want || got.close > 0 {
		t.Errorf("got %v, want %v and no tile twice nearby", got, want)
	}
	if twice := score(c, measured(t, tiled(library, c), 16), features); twice.distinct != 1 || twice.close != 1 {
		t.Errorf("one tile everywhere: got %v", twice)
	}
	if !strings.Contains(got.String(), fmt.Sprint(want.distinct)) {
		t.Errorf("text: got %v", got)
	}
}

// tiled is a mosaic of one tile.
func tiled(library *tiles.Library, c *Cells) image.Image {
	out, tile := image.NewRGBA(image.Rect(0, 0, 16*c.Cols, 16*c.Rows)), tileImage(library, 0)
	for y := range out.Rect.Dy() {
		for x := range out.Rect.Dx() {
			out.SetRGBA(x, y, tile.RGBAAt(x%16, y%16))
		}
	}
	return out
}
