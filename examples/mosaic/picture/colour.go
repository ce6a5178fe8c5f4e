package picture

import (
	"fmt"
	"image"
	"image/draw"
	"math"
	"runtime"
	"sync"
)

// Linear is a colour in linear light: the amounts of the red, green and blue
// sRGB primaries, each from 0 to 1 (full). Unlike file values, amounts
// of light may be added and averaged. The zero value is black.
type Linear struct {
	R, G, B float64
}

// Plus adds a part of another colour.
func (c Linear) Plus(d Linear, part float64) Linear {
	return Linear{c.R + part*d.R, c.G + part*d.G, c.B + part*d.B}
}

// Decode8 gives the linear light, 0 to 1, of an 8-bit sRGB value. It is the
// electro-optical transfer function of IEC 61966-2-1, section 5.2.
func Decode8(v uint8) float64 { return decoded8[v] }

var decoded8 = func() (t [1 << 8]float64) {
	for i := range t {
		if v := float64(i) / 0xff; v <= 0.04045 {
			t[i] = v / 12.92
		} else {
			t[i] = math.Pow((v+0.055)/1.055, 2.4)
		}
	}
	return t
}()

// Encode8 gives the 8-bit sRGB value nearest to an amount of linear light, by
// the inverse transfer function of IEC 61966-2-1. Amounts outside 0 to 1 are
// clamped; NaN gives 0. The conversions of products keep every machine from fusing them with the sums.
func Encode8(light float64) uint8 {
	switch {
	case !(light > 0):
		return 0
	case light >= 1:
		return 0xff
	case light <= 0.0031308:
		return uint8(float64(12.92*light*0xff) + 0.5)
	}
	return uint8(float64((float64(1.055*math.Pow(light, 1/2.4))-0.055)*0xff) + 0.5)
}

// unit is full light in fixed point. Sums of light are kept in integers because
// integer addition does not care about order: a cell measures the same to the
// last bit whether the picture was sliced or whole. A cell of all 50 million
// pixels fits a uint64.
const unit = 1 << 36

// light8 is the fixed-point light of each 8-bit sRGB value.
var light8 = func() (t [1 << 8]uint64) {
	for i := range t {
		t[i] = uint64(math.Round(decoded8[i] * unit))
	}
	return t
}()

// Grid is the mean colours of the cells of a rectangle, row by row from the top
// left: Means[y*Cols+x]. The zero value is an empty grid.
type Grid struct {
	Cols, Rows int
	Means      []Linear
}

// Average measures the mean colour, in linear light, of each of cols×rows equal cells of r, which
// must lie in the picture and have at least as many pixels each way. Where a
// boundary between cells runs through a pixel, the pixel counts for each cell
// by the area it has there, so the mean of all cells is the mean of r.
func Average(img image.Image, r image.Rectangle, cols, rows int) (Grid, error) {
	switch {
	case r.Empty() || !r.In(img.Bounds()):
		return Grid{}, fmt.Errorf("measuring cells: %v is not within the picture's %v", r, img.Bounds())
	case cols < 1 || rows < 1 || cols > r.Dx() || rows > r.Dy():
		return Grid{}, fmt.Errorf("measuring cells: %v cannot be divided into %d×%d cells", r, cols, rows)
	}
	src, ok := img.(*image.RGBA)
	if !ok {
		src = OverWhite(img)
		r = r.Sub(img.Bounds().Min)
	}
	g := Grid{Cols: cols, Rows: rows, Means: make([]Linear, cols*rows)}
	var parts sync.WaitGroup
	n := min(runtime.GOMAXPROCS(0), rows)
	for i := range n {
		parts.Go(func() { averageRows(src, r, g, i*rows/n, (i+1)*rows/n) })
	}
	parts.Wait()
	return g, nil
}

// OverWhite copies a picture onto white, with its top left corner at (0, 0).
func OverWhite(img image.Image) *image.RGBA {
	b := img.Bounds()
	flat := image.NewRGBA(image.Rectangle{Max: b.Size()})
	draw.Draw(flat, flat.Rect, image.White, image.Point{}, draw.Src)
	draw.Draw(flat, flat.Rect, img, b.Min, draw.Over)
	return flat
}

// averageRows measures the rows of cells from first to end. Each pixel is divided into cols×rows parts and each cell into
// w×h, so that all weights are integers.
func averageRows(src *image.RGBA, r image.Rectangle, g Grid, first, end int) {
	across, down := sharesOf(r.Dx(), g.Cols), sharesOf(r.Dy(), g.Rows)
	full := float64(across.perCell) * float64(down.perCell) * unit
	line := make([][3]uint64, g.Cols)
	for row := first; row < end; row++ {
		total := make([][3]uint64, g.Cols)
		for y, height := range down.of(row) {
			clear(line)
			pix := src.Pix[src.PixOffset(r.Min.X, r.Min.Y+y):]
			for cell := range line {
				sum := &line[cell]
				for x, width := range across.of(cell) {
					p := pix[4*x : 4*x+3 : 4*x+3]
					sum[0] += light8[p[0]] * width
					sum[1] += light8[p[1]] * width
					sum[2] += light8[p[2]] * width
				}
				for c := range sum {
					total[cell][c] += sum[c] * height
				}
			}
		}
		for x, t := range total {
			g.Means[row*g.Cols+x] = Linear{float64(t[0]) / full, float64(t[1]) / full, float64(t[2]) / full}
		}
	}
}

// shares divides pixels and cells into equal parts along one axis: a pixel has perPixel parts, a
// cell perCell. They are in lowest terms, so that a whole cell gives the same numbers in every
// picture.
type shares struct{ perPixel, perCell int }

func sharesOf(pixels, cells int) shares {
	a, b := pixels, cells
	for b != 0 {
		a, b = b, a%b
	}
	return shares{perPixel: cells / a, perCell: pixels / a}
}

// of yields the pixels of a cell with the number of parts that each has in it.
func (s shares) of(cell int) func(yield func(pixel int, parts uint64) bool) {
	return func(yield func(int, uint64) bool) {
		at, end := cell*s.perCell, (cell+1)*s.perCell
		for at < end {
			pixel := at / s.perPixel
			next := min((pixel+1)*s.perPixel, end)
			if !yield(pixel, uint64(next-at)) { //nolint:gosec // positive
				return
			}
			at = next
		}
	}
}

// Fit scales a picture down so that no side is longer than most pixels. A smaller one stays as it is.
func Fit(img *image.RGBA, most int) *image.RGBA {
	w, h := img.Rect.Dx(), img.Rect.Dy()
	longest := max(w, h)
	if longest <= most {
		return img
	}
	g, err := Average(img, img.Rect, max(1, w*most/longest), max(1, h*most/longest))
	if err != nil {
		return img // it has no pixels
	}
	return g.Image()
}

// Image has a pixel for every cell.
func (g Grid) Image() *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, g.Cols, g.Rows))
	for i, c := range g.Means {
		copy(img.Pix[4*i:], []uint8{Encode8(c.R), Encode8(c.G), Encode8(c.B), 0xff})
	}
	return img
}
