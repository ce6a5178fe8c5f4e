package layout

import (
	"fmt"
	"image"
	"math"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// Score says how well a mosaic shows its picture. Less is better.
type Score struct {
	// Outliers is the share of cells that are off in hue or chroma: the distance of the means along
	// the colour axes of OKLab is more than 0.10. Each such cell is seen as a speck, even in a good
	// mosaic.
	Outliers float64

	// Near is the mean error of the sub-cells. Far is the mean error of the mosaic from a distance at
	// which its cells blur (a Gaussian filter of one cell). Both are distances in OKLab.
	Near, Far float64
}

// outlier is the error in hue and chroma above which a cell is seen as a speck.
const outlier = 0.10

// Total is the score in one number.
func (s Score) Total() float64 { return s.Near + s.Far + s.Outliers }

// Compare scores a mosaic of any program. The picture has cells of the given side, which is at least 3
// pixels; a remainder at the right and the bottom does not count. The mosaic may have any size, but has
// the same cells.
func Compare(original, mosaic image.Image, cell int) (Score, error) {
	b := original.Bounds()
	if cell < fine || b.Dx() < cell || b.Dy() < cell {
		return Score{}, fmt.Errorf("comparing mosaics: a picture of %d×%d pixels has no cells of %d: choose %d or more, up to its size", b.Dx(), b.Dy(), cell, fine)
	}
	cols, rows := b.Dx()/cell, b.Dy()/cell
	cells := image.Rect(0, 0, cols*cell, rows*cell).Add(b.Min)
	want, err := picture.Average(original, cells, fine*cols, fine*rows)
	if err != nil {
		return Score{}, err
	}
	got, err := picture.Average(mosaic, mosaic.Bounds(), fine*cols, fine*rows)
	if err != nil {
		return Score{}, err
	}
	s := Score{Near: difference(want, got), Far: difference(blurred(want), blurred(got))}
	for i := range cols * rows {
		x, y := i%cols*fine, i/cols*fine
		a, b := mean(want, x, y), mean(got, x, y)
		if math.Hypot(a[1]-b[1], a[2]-b[2]) > outlier {
			s.Outliers += 1 / float64(cols*rows)
		}
	}
	return s, nil
}

// mean returns the colour of the cell with this first sub-cell.
func mean(g picture.Grid, x, y int) [3]float64 {
	var sum picture.Linear
	for k := range fine * fine {
		sum = sum.Plus(g.Means[(y+k/fine)*g.Cols+x+k%fine], 1.0/(fine*fine))
	}
	return oklab(sum)
}

func difference(g, h picture.Grid) float64 {
	sum := 0.0
	for i := range g.Means {
		a, b := oklab(g.Means[i]), oklab(h.Means[i])
		sum += math.Hypot(math.Hypot(a[0]-b[0], a[1]-b[1]), a[2]-b[2])
	}
	return sum / float64(len(g.Means))
}

// blurred applies a Gaussian filter of one cell along the rows and then along the columns.
func blurred(g picture.Grid) picture.Grid {
	const reach = 3 * fine
	for _, step := range [2]image.Point{{X: 1}, {Y: 1}} {
		means := make([]picture.Linear, len(g.Means))
		for i := range means {
			var sum picture.Linear
			all := 0.0
			for d := -reach; d <= reach; d++ {
				at := image.Pt(i%g.Cols, i/g.Cols).Add(step.Mul(d))
				if !at.In(image.Rect(0, 0, g.Cols, g.Rows)) {
					continue
				}
				w := math.Exp(-float64(d*d) / (2 * fine * fine))
				sum, all = sum.Plus(g.Means[at.Y*g.Cols+at.X], w), all+w
			}
			means[i] = picture.Linear{}.Plus(sum, 1/all)
		}
		g.Means = means
	}
	return g
}

// oklab converts with floating-point numbers, which is precise and, unlike light.lab, not the same on every machine.
func oklab(c picture.Linear) [3]float64 {
	l := math.Cbrt(0.4122214708*c.R + 0.5363325363*c.G + 0.0514459929*c.B)
	m := math.Cbrt(0.2119034982*c.R + 0.6806995451*c.G + 0.1073969566*c.B)
	s := math.Cbrt(0.0883024619*c.R + 0.2817188376*c.G + 0.6299787005*c.B)
	return [3]float64{
		0.2104542553*l + 0.7936177850*m - 0.0040720468*s,
		1.9779984951*l - 2.4285922050*m + 0.4505937099*s,
		0.0259040371*l + 0.7827717662*m - 0.8086757660*s,
	}
}
