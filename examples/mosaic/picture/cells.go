package picture

import (
	"fmt"
	"image"
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
	switch {
	case r.Empty() || !r.In(img.Bounds()):
		return Grid{}, fmt.Errorf("measuring cells: %v is not within the picture's %v", r, img.Bounds())
	case cols < 1 || rows < 1 || cols > r.Dx() || rows > r.Dy():
		return Grid{}, fmt.Errorf("measuring cells: %v cannot be divided into %d×%d cells", r, cols, rows)
	}
	if t, ok := img.(*turned); ok {
		if t.o.transposes() {
			cols, rows = rows, cols
		}
		g, err := Average(t.src, t.storedRect(r), cols, rows)
		return g.turn(t.o), err
	}
	if deep(img) {
		return average(img, r, cols, rows, row16, light16()), nil
	}
	return average(img, r, cols, rows, row8, light8[:]), nil
}

// turn moves every cell to its upright place.
func (g Grid) turn(o orientation) Grid {
	up := Grid{Cols: g.Cols, Rows: g.Rows, Means: make([]Linear, len(g.Means))}
	if o.transposes() {
		up.Cols, up.Rows = g.Rows, g.Cols
	}
	for i, m := range g.Means {
		x, y := o.place(i%g.Cols, i/g.Cols, g.Cols, g.Rows)
		up.Means[y*up.Cols+x] = m
	}
	return up
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
// parts and all weights are integers.
func average[P pixel](img image.Image, r image.Rectangle, cols, rows int, read rowReader[P], light []uint64) Grid {
	w, h := r.Dx(), r.Dy()
	across, down := ratioOf(w, cols), ratioOf(h, rows)
	full := float64(across.perCell) * float64(down.perCell) * unit

	g := Grid{Cols: cols, Rows: rows, Means: make([]Linear, 0, cols*rows)}
	total := make([]sum, cols) // of the row of cells being measured
	line := make([]sum, cols)  // of one row of pixels
	buf := make([]P, min(w, chunk))
	missing := down.perCell // parts that the row of cells still lacks
	for y := range h {
		clear(line)
		for x := 0; x < w; x += chunk {
			part := buf[:min(chunk, w-x)]
			read(img, r.Min.X+x, r.Min.Y+y, part)
			addRow(line, part, x, across, light)
		}
		take := min(down.perPixel, missing)
		addLine(total, line, uint64(take))
		if missing -= take; missing > 0 {
			continue
		}
		for _, t := range total {
			g.Means = append(g.Means, Linear{float64(t[0]) / full, float64(t[1]) / full, float64(t[2]) / full})
		}
		clear(total)
		rest := down.perPixel - take
		addLine(total, line, uint64(rest))
		missing = down.perCell - rest
	}
	return g
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
