package tiles

import (
	"fmt"
	"image"
	"math"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// masterSide is the size at which tiles are painted before they are scaled, as
// photographs from a folder are. Tiles of every size show the same pictures;
// those that will be small are painted with fewer pixels, because that is
// quicker and cannot be seen.
func masterSide(size int) int {
	if size <= MaxSize/2 {
		return MaxSize / 2
	}
	return MaxSize
}

// Generate makes a library without any photographs: some 3,500 ornamental tiles
// of size×size pixels whose mean colours are spread evenly over everything that
// sRGB can show. It makes the same tiles each time. It fails if size is not 1
// to [MaxSize].
func Generate(size int) (*Library, error) {
	if err := checkSize(size); err != nil {
		return nil, err
	}
	side := masterSide(size)
	masks := ornaments(side)
	var made []Tile
	for i, c := range palette() {
		t, err := fromImage(generatedName(masks, i), paint(c, ornamentOf(masks, i).mask, side), size)
		if err != nil {
			return nil, err
		}
		made = append(made, t)
	}
	return New(size, made)
}

// ornamentOf chooses the ornament of a colour: neighbouring colours get different ones.
func ornamentOf(masks []ornament, i int) ornament { return masks[i*7%len(masks)] }

func generatedName(masks []ornament, i int) string {
	return fmt.Sprintf("%s-%04d", ornamentOf(masks, i).name, i)
}

// paletteStep is the distance of neighbouring colours of the palette, in ΔE.
const paletteStep = 8.5

// palette lists colours on a body-centred cubic lattice in CIELAB, as far as
// sRGB reaches. That lattice leaves the smallest gaps for its number of points.
func palette() []lab {
	// Tiles have a texture, so their mean cannot lie on the very surface of what
	// sRGB can show; a point a little outside is pulled in rather than dropped,
	// or the strongest colours would be missing.
	const outside = 0.035
	a := paletteStep * 2 / math.Sqrt(3) // of the cube
	var list []lab
	for k := 0; float64(k)*a/2 <= 100+a/2; k++ {
		shift := float64(k%2) * a / 2
		for i := -14; i <= 14; i++ {
			for j := -14; j <= 14; j++ {
				c := lab{L: 3 + float64(k)*a/2, A: float64(i)*a + shift, B: float64(j)*a + shift}
				l := c.light()
				if minLight(l) >= -outside && maxLight(l) <= 1+outside*2 && c.L < 100 {
					list = append(list, c)
				}
			}
		}
	}
	return list
}

func minLight(c picture.Linear) float64 { return min(c.R, c.G, c.B) }
func maxLight(c picture.Linear) float64 { return max(c.R, c.G, c.B) }

// paint colours an ornament so that its mean is about the given colour.
func paint(c lab, mask []uint8, side int) image.Image {
	// Near the limits of sRGB much of a contrast is cut off, so ask for more until
	// the ornament shows.
	contrast := 11.0
	ramp := glaze(c, contrast)
	for visible(ramp) < 28 && contrast < 60 {
		contrast *= 1.3
		ramp = glaze(c, contrast)
	}
	img := image.NewRGBA(image.Rect(0, 0, side, side))
	for i, m := range mask {
		p := img.Pix[4*i : 4*i+4]
		copy(p, ramp[m][:])
		p[3] = 0xff
	}
	return img
}

// glaze is the colours of an ornament: from a deeper shade, turned one way
// around the colour circle, to a lighter tint turned the other way, like glaze
// that gathers in the hollows.
func glaze(c lab, contrast float64) (ramp [levels][3]uint8) {
	dark, bright := c.turned(-0.22), c.turned(0.22)
	dark.L = max(dark.L-contrast, 0)
	bright.L = min(bright.L+contrast*0.8, 100)
	for i := range ramp {
		t := 2 * float64(i) / (levels - 1)
		between := blend(dark, c, t)
		if t > 1 {
			between = blend(c, bright, t-1)
		}
		l := between.light()
		ramp[i] = [3]uint8{picture.Encode8(l.R), picture.Encode8(l.G), picture.Encode8(l.B)}
	}
	return ramp
}

// visible sums up how far the channels of a ramp reach.
func visible(ramp [levels][3]uint8) int {
	first, last := ramp[0], ramp[levels-1]
	n := 0
	for c := range first {
		n += max(int(first[c])-int(last[c]), int(last[c])-int(first[c]))
	}
	return n
}

// turned rotates the hue, in radians.
func (a lab) turned(angle float64) lab {
	sin, cos := math.Sincos(angle)
	return lab{L: a.L, A: a.A*cos - a.B*sin, B: a.A*sin + a.B*cos}
}

func blend(a, b lab, t float64) lab {
	return lab{L: a.L + (b.L-a.L)*t, A: a.A + (b.A-a.A)*t, B: a.B + (b.B-a.B)*t}
}
