package tiles

import (
	"fmt"
	"image"
	"math"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// levels is how many amounts of each primary the generated tiles have.
const levels = 15

// Generate makes a library without any photographs: 3,375 patterned tiles of size×size pixels, with
// colours that are spread evenly over sRGB. It makes the same tiles each time. It fails if size is
// not 1 to [MaxSize].
func Generate(size int) (*Library, error) {
	if err := checkSize(size); err != nil {
		return nil, err
	}
	// A tile is a pattern in three amounts of light, one for each primary, and there are few of them.
	var planes [len(patterns)][levels][]uint8
	for p := range planes {
		for n := range planes[p] {
			planes[p][n] = paint(shade(n), patterns[p].at)
		}
	}
	made := make([]Tile, levels*levels*levels)
	for i := range made {
		p := i * 7 % len(patterns) // neighbouring colours have different ones
		name, img := patterns[p].name+"-", image.NewRGBA(image.Rect(0, 0, painted, painted))
		for k, n := range [...]int{i / levels / levels, i / levels % levels, i % levels} {
			name += fmt.Sprintf("%02x", shade(n))
			for at, v := range planes[p][n] {
				img.Pix[4*at+k], img.Pix[4*at+3] = v, 0xff
			}
		}
		made[i] = tileOf(name, img, size)
	}
	return New(size, made)
}

// shade is the n-th amount of a primary.
func shade(n int) uint8 { return uint8(n * 255 / (levels - 1)) }

// pattern is a relief over the square from -1 to 1, of heights from -1 to 1.
type pattern struct {
	name string
	at   func(x, y float64) float64
}

var patterns = [...]pattern{
	{"petals", func(x, y float64) float64 { return math.Cos(6*math.Atan2(y, x)) * math.Exp(-math.Hypot(x, y)) * 1.5 }},
	{"waves", func(x, y float64) float64 { return math.Sin(8*y + 2*math.Sin(3*x)) }},
	{"rings", func(x, y float64) float64 { return math.Cos(12 * math.Hypot(x, y)) }},
	{"pearl", func(x, y float64) float64 { return 1 - 2*math.Hypot(x+0.25, y+0.25) }},
	{"dots", func(x, y float64) float64 { return math.Cos(7*x) * math.Cos(7*y) }},
	{"dawn", func(x, y float64) float64 { return y + 0.2*math.Sin(5*x+3*y) }},
	{"stripes", func(x, y float64) float64 { return math.Tanh(3 * math.Sin(6*(x+y))) }},
	{"swirl", func(x, y float64) float64 { return math.Sin(2*math.Atan2(y, x) + 6*math.Hypot(x, y)) }},
	{"diamond", func(x, y float64) float64 { return 1 - 4*math.Abs(math.Abs(x)+math.Abs(y)-0.6) }},
}

// painted is the side of a generated tile before it is scaled, as photographs are.
const painted = MaxSize / 2

// paint lays a pattern over one primary, so that its mean is the given amount.
func paint(amount uint8, at func(x, y float64) float64) []uint8 {
	heights := make([]float64, painted*painted)
	mean := 0.0
	for i := range heights {
		x, y := (float64(i%painted)+0.5)*2/painted-1, (float64(i/painted)+0.5)*2/painted-1
		heights[i] = min(max(at(x, y), -1), 1)
		if max(math.Abs(x), math.Abs(y)) > 0.92 { // a bevelled rim, lit from the top left
			heights[i] = -math.Copysign(0.8, x+y)
		}
		mean += heights[i] / float64(len(heights))
	}
	light, plane := picture.Decode8(amount), make([]uint8, len(heights))
	for i, h := range heights {
		// Within the range of the primary, so that nothing is clipped and the mean stays.
		plane[i] = picture.Encode8(light + (h-mean)*0.3*min(light, 1-light))
	}
	return plane
}
