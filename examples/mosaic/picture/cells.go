package picture

import (
	"fmt"
	"image"
	"runtime"
	"sync"
)

// Grid is the mean colours of the cells of a rectangle, row by row from the top
// left: Means[y*Cols+x]. The zero value is an empty grid.
type Grid struct {
	Cols, Rows int
	Means      []Linear
}

// chunk is how many pixels of a row are converted at a time: enough to make the
// conversion cheap, few enough to stay in the first-level cache and to keep a
// picture of one endless row from needing an endless buffer.
const chunk = 4096

// Cells measures the mean colour, in linear light, of each tile×tile cell of r,
// which must lie in the picture and consist of whole cells. The means are exact
// to about 1e-11 and do not depend on how the picture is stored, turned or cut.
func Cells(img image.Image, r image.Rectangle, tile int) (Grid, error) {
	if tile < 1 || r.Empty() || r.Dx()%tile != 0 || r.Dy()%tile != 0 {
		return Grid{}, fmt.Errorf("measuring cells: %v does not consist of whole %d×%d cells", r, tile, tile)
	}
	return Average(img, r, r.Dx()/tile, r.Dy()/tile)
}

// Average measures the mean colour of each of cols×rows equal cells of r, which
// must lie in the picture and have at least as many pixels each way. Where a
// boundary between cells runs through a pixel, the pixel counts for each cell
// by the area it has there, so the mean of all cells is the mean of r. The
// precision is that of [Cells].
func Average(img image.Image, r image.Rectangle, cols, rows int) (Grid, error) {
	if err := divisible(img, r, cols, rows); err != nil {
		return Grid{}, err
	}
	g := Grid{Cols: cols, Rows: rows, Means: make([]Linear, cols*rows)}
	err := EachCell(img, r, cols, rows, func(x, y int, mean Linear) { g.Means[y*cols+x] = mean })
	return g, err
}

// divisible returns an error unless r lies in the picture and has a pixel for each cell each way.
func divisible(img image.Image, r image.Rectangle, cols, rows int) error {
	switch {
	case r.Empty() || !r.In(img.Bounds()):
		return fmt.Errorf("measuring cells: %v is not within the picture's %v", r, img.Bounds())
	case cols < 1 || rows < 1 || cols > r.Dx() || rows > r.Dy():
		return fmt.Errorf("measuring cells: %v cannot be divided into %d×%d cells", r, cols, rows)
	}
	return nil
}

// EachCell is [Average] without the memory for the result: it calls each with the place and the mean colour
// of every cell once, in any order and, for a large picture, from several goroutines at a time.
func EachCell(img image.Image, r image.Rectangle, cols, rows int, each func(x, y int, mean Linear)) error {
	if err := divisible(img, r, cols, rows); err != nil {
		return err
	}
	t, ok := img.(*turned)
	p, converted := img.(*profiled)
	switch {
	case ok:
		across, down := cols, rows
		if t.o.transposes() {
			across, down = rows, cols
		}
		return EachCell(t.src, t.storedRect(r), across, down, func(x, y int, mean Linear) {
			x, y = t.o.place(x, y, across, down)
			each(x, y, mean)
		})
	case converted:
		p.eachCell(r, cols, rows, each)
	case deep(img):
		average(img, r, cols, rows, row16, light16(), each)
	default:
		average(img, r, cols, rows, row8, light8[:], each)
	}
	return nil
}

// ratio says how pixels and cells divide each other along one axis: a pixel
// consists of perPixel parts, a cell of perCell. In lowest terms, so that a
// whole cell gives the same numbers whatever picture it is part of.
type ratio struct{ perPixel, perCell int }

func ratioOf(pixels, cells int) ratio {
	a, b := pixels, cells
	for b != 0 {
		a, b = b, a%b
	}
	return ratio{perPixel: cells / a, perCell: pixels / a}
}

// average divides the pixels into parts, so that every cell consists of whole
// parts and all weights are integers. It calls each from several goroutines.
func average[P pixel](img image.Image, r image.Rectangle, cols, rows int, read rowReader[P], light []uint64, each func(x, y int, mean Linear)) {
	stripes := min(runtime.GOMAXPROCS(0), rows, r.Dx()*r.Dy()/stripePixels+1)
	var others sync.WaitGroup
	for i := 1; i < stripes; i++ {
		others.Go(func() { averageRows(img, r, cols, rows, i*rows/stripes, (i+1)*rows/stripes, read, light, each) })
	}
	averageRows(img, r, cols, rows, 0, rows/stripes, read, light, each)
	others.Wait()
}

// stripePixels is how many pixels are worth a goroutine.
const stripePixels = 1 << 20

// averageRows measures the rows of cells from row to end. A row of pixels that the edge runs through is read for both sides.
func averageRows[P pixel](img image.Image, r image.Rectangle, cols, rows, row, end int, read rowReader[P], light []uint64, each func(x, y int, mean Linear)) {
	w := r.Dx()
	across, down := ratioOf(w, cols), ratioOf(r.Dy(), rows)
	full := float64(across.perCell) * float64(down.perCell) * unit

	total := make([]sum, cols) // of the row of cells being measured
	line := make([]sum, cols)  // of one row of pixels
	buf := make([]P, min(w, chunk))
	missing := down.perCell                                // parts that the row of cells still lacks
	left := down.perPixel - row*down.perCell%down.perPixel // parts of the row of pixels
	for y := r.Min.Y + row*down.perCell/down.perPixel; row < end; y++ {
		clear(line)
		for x := 0; x < w; x += chunk {
			part := buf[:min(chunk, w-x)]
			read(img, r.Min.X+x, y, part)
			addRow(line, part, x, across, light)
		}
		for left > 0 && row < end {
			take := min(left, missing)
			addLine(total, line, uint64(take)) //nolint:gosec // positive
			left -= take
			if missing -= take; missing > 0 {
				continue
			}
			for x, t := range total {
				each(x, row, Linear{float64(t[0]) / full, float64(t[1]) / full, float64(t[2]) / full})
			}
			row++
			clear(total)
			missing = down.perCell
		}
		left = down.perPixel
	}
}

func addLine(total, line []sum, weight uint64) {
	if weight == 0 {
		return
	}
	for x := range total {
		total[x].add(&line[x], weight)
	}
}

// addRow adds pixels, the first of which is the x-th of its row, to the cells
// they lie in.
func addRow[P pixel](line []sum, px []P, x int, across ratio, light []uint64) {
	for len(px) > 0 {
		cell := x * across.perPixel / across.perCell
		edge := (cell + 1) * across.perCell // in parts
		whole := min(edge/across.perPixel-x, len(px))
		var s sum
		s.addPixels(px[:whole], light)
		line[cell].add(&s, uint64(across.perPixel))
		x += whole
		px = px[whole:]
		if left := edge - x*across.perPixel; left > 0 && len(px) > 0 && left < across.perPixel {
			// The pixel that the edge runs through.
			s = sum{}
			s.addPixels(px[:1], light)
			line[cell].add(&s, uint64(left))
			line[cell+1].add(&s, uint64(across.perPixel-left))
			x++
			px = px[1:]
		}
	}
}

// sum is an amount of light in fixed point, times a weight.
type sum [3]uint64

func (s *sum) add(t *sum, weight uint64) {
	s[0] += t[0] * weight
	s[1] += t[1] * weight
	s[2] += t[2] * weight
}

func (s *sum) addPixels(px any, light []uint64) {
	switch px := px.(type) {
	case []rgb8:
		light := (*[1 << 8]uint64)(light)
		r, g, b := s[0], s[1], s[2]
		for i := range px {
			p := &px[i]
			r += light[p[0]]
			g += light[p[1]]
			b += light[p[2]]
		}
		s[0], s[1], s[2] = r, g, b
	case []rgb16:
		light := (*[1 << 16]uint64)(light)
		for i := range px {
			p := &px[i]
			s[0] += light[p[0]]
			s[1] += light[p[1]]
			s[2] += light[p[2]]
		}
	}
}
