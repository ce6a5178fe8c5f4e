package layout

import (
	"fmt"
	"image"
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
			tile := tiles.Tile{Name: fmt.Sprintf("%d-%04d", p, i)}
			for _, c := range g.Means {
				tile.Pix = append(tile.Pix, picture.Encode8(c.R), picture.Encode8(c.G), picture.Encode8(c.B), 255)
				n := float64(size * size)
				tile.Mean.R += c.R / n
				tile.Mean.G += c.G / n
				tile.Mean.B += c.B / n
			}
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

// baseline chooses the tile of the nearest mean colour in CIELAB for every cell.
func baseline(c *Cells, library *tiles.Library) *Layout {
	l := &Layout{Library: library.ID(), Cells: c, Tiles: make([]int32, c.Cols*c.Rows)}
	labs := make([]cielab, library.Len())
	for i := range labs {
		labs[i] = cielabOf(library.Tile(i).Mean)
	}
	for i := range l.Tiles {
		mean, least := cielabOf(meanOf(c.Cell(i))), math.Inf(1)
		for t, lab := range labs {
			if d := math.Hypot(math.Hypot(mean[0]-lab[0], mean[1]-lab[1]), mean[2]-lab[2]); d < least {
				l.Tiles[i], least = int32(t), d
			}
		}
	}
	return l
}

type cielab [3]float64

// cielabOf converts by the matrix of IEC 61966-2-1 and the formulae of CIE 15.
func cielabOf(c picture.Linear) cielab {
	root := func(t float64) float64 {
		if t > 216.0/24389 {
			return math.Cbrt(t)
		}
		return (24389.0/27*t + 16) / 116
	}
	x := root((0.4124*c.R + 0.3576*c.G + 0.1805*c.B) / 0.9505)
	y := root(0.2126*c.R + 0.7152*c.G + 0.0722*c.B)
	z := root((0.0193*c.R + 0.1192*c.G + 0.9505*c.B) / 1.0890)
	return cielab{116*y - 16, 500 * (x - y), 200 * (y - z)}
}

// meanOf is the mean of colours in linear light.
func meanOf(colours []Colour) (m picture.Linear) {
	n := float64(len(colours))
	for _, c := range colours {
		p := linear(c)
		m.R, m.G, m.B = m.R+p[0]/n, m.G+p[1]/n, m.B+p[2]/n
	}
	return m
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

type oklab [3]float64

func oklabOf(c [3]float64) oklab {
	l := math.Cbrt(0.4122214708*c[0] + 0.5363325363*c[1] + 0.0514459929*c[2])
	m := math.Cbrt(0.2119034982*c[0] + 0.6806995451*c[1] + 0.1073969566*c[2])
	s := math.Cbrt(0.0883024619*c[0] + 0.2817188376*c[1] + 0.6299787005*c[2])
	return oklab{0.2104542553*l + 0.7936177850*m - 0.0040720468*s, 1.9779984951*l - 2.4285922050*m + 0.4505937099*s, 0.0259040371*l + 0.7827717662*m - 0.8086757660*s}
}

func apart(a, b oklab) float64 {
	return math.Sqrt((a[0]-b[0])*(a[0]-b[0]) + (a[1]-b[1])*(a[1]-b[1]) + (a[2]-b[2])*(a[2]-b[2]))
}

// plane is a picture of linear light, 3×3 points a cell.
type plane struct {
	w, h int
	px   [][3]float64
}

func linear(c Colour) [3]float64 {
	return [3]float64{picture.Decode8(c[0]), picture.Decode8(c[1]), picture.Decode8(c[2])}
}

func planes(t testing.TB, l *Layout, library *tiles.Library) (want, got plane) {
	c := l.Cells
	want = plane{w: c.Cols * 3, h: c.Rows * 3, px: make([][3]float64, c.Cols*c.Rows*9)}
	got = want
	got.px = make([][3]float64, len(want.px))
	tile := map[int32]*Cells{}
	size := library.Size()
	for i, n := range l.Tiles {
		if tile[n] == nil {
			img := &image.RGBA{Pix: library.Tile(int(n)).Pix, Stride: 4 * size, Rect: image.Rect(0, 0, size, size)}
			m, err := Measure(img, img.Rect, 1, 1)
			if err != nil {
				t.Fatal(err)
			}
			tile[n] = m
		}
		for k := range 9 {
			at := (i/c.Cols*3+k/3)*want.w + i%c.Cols*3 + k%3
			want.px[at] = linear(c.Cell(i)[k])
			got.px[at] = linear(tile[n].Colours[k])
		}
	}
	return want, got
}

func (p plane) blurred(sigma float64) plane {
	reach := int(3 * sigma)
	kernel := make([]float64, 2*reach+1)
	for i := range kernel {
		d := float64(i - reach)
		kernel[i] = math.Exp(-d * d / 2 / sigma / sigma)
	}
	pass := func(src [][3]float64, dx, dy int) [][3]float64 {
		dst := make([][3]float64, len(src))
		for y := range p.h {
			for x := range p.w {
				var s [3]float64
				n := 0.0
				for k, w := range kernel {
					u, v := x+(k-reach)*dx, y+(k-reach)*dy
					if u < 0 || v < 0 || u >= p.w || v >= p.h {
						continue
					}
					n += w
					for c := range s {
						s[c] += w * src[v*p.w+u][c]
					}
				}
				for c := range s {
					dst[y*p.w+x][c] = s[c] / n
				}
			}
		}
		return dst
	}
	return plane{p.w, p.h, pass(pass(p.px, 1, 0), 0, 1)}
}

func difference(a, b plane) float64 {
	sum := 0.0
	for i := range a.px {
		sum += apart(oklabOf(a.px[i]), oklabOf(b.px[i]))
	}
	return sum / float64(len(a.px))
}

type figures struct {
	fine, blurred float64
	distinct      int
}

func judge(t testing.TB, l *Layout, library *tiles.Library) figures {
	want, got := planes(t, l, library)
	return figures{difference(want, got), difference(want.blurred(3), got.blurred(3)), l.Distinct()}
}

// inputs are the photographs to make mosaics of, and cells that give each some ten thousand.
var inputs = []struct {
	name string
	cell int
}{
	{"bep/sunrise.jpg", 8}, {"mushroom.jpg", 4}, {"metadata-extractor/withUncompressedYCbCrThumbnail2.jpg", 5}, {"metadata-extractor/withExifAndIptc.jpg", 5},
}

// The choice is compared with that of the nearest mean in CIELAB.
func TestQualityOnPhotographs(t *testing.T) {
	if testing.Short() {
		t.Skip("makes many mosaics of photographs")
	}
	library := cropLibrary(t, 16, 800)
	for _, in := range inputs {
		c := measured(t, photo(t, in.name), in.cell)
		before := judge(t, baseline(c, library), library)
		best, usual := judge(t, chosen(t, c, library, BestMatch), library), judge(t, chosen(t, c, library, DefaultReuse), library)
		t.Logf("%s, %d cells, %d tiles: nearest mean %v, best match %v, default %v", in.name, c.Cols*c.Rows, library.Len(), before, best, usual)
		if best.fine >= before.fine {
			t.Errorf("%s: error of sub-cells at best match: got %.4f, want less than %.4f", in.name, best.fine, before.fine)
		}
		if want := min(4*before.distinct, library.Len()*9/10); usual.distinct < want {
			t.Errorf("%s: distinct tiles by default: got %d, want %d", in.name, usual.distinct, want)
		}
		if usual.blurred > 2*before.blurred {
			t.Errorf("%s: blurred error by default: got %.4f, want at most %.4f", in.name, usual.blurred, 2*before.blurred)
		}
	}
}

func (f figures) String() string {
	return fmt.Sprintf("{sub-cells %.4f, blurred %.4f, %d tiles}", f.fine, f.blurred, f.distinct)
}
