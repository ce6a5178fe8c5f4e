package layout

import (
	"fmt"
	"image"

	"github.com/millrace/millrace/examples/mosaic/picture"
	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// Colours are compared in OKLab (Björn Ottosson, "A perceptual color space for image processing",
// 2020), in integers. The results are the same on every machine, because no floating-point unit
// fuses or rounds them.

const (
	labUnit   = 1 << 12 // lightness 1 in OKLab
	lightUnit = 1<<16 - 1
	rootUnit  = 1 << 14
	labShift  = 16 // of the factors of the matrices
)

// lab is a colour in OKLab, in units of 1/labUnit.
type lab [3]int32

// light is an amount of linear light of the sRGB primaries, in units of 1/lightUnit.
type light [3]uint32

// lights has the linear light of every 8-bit sRGB value.
var lights = func() (t [256]uint32) {
	for v := range t {
		t[v] = uint32(float64(picture.Decode8(uint8(v))*lightUnit) + 0.5)
	}
	return t
}()

// roots has the cube root of every amount of light, in units of 1/rootUnit.
var roots = func() (t [lightUnit + 1]uint16) {
	root := uint64(0)
	for v := range t {
		// The next root is taken once its cube, halfway before it, is reached: (2·root+1)³ / (2·rootUnit)³.
		for (2*root+1)*(2*root+1)*(2*root+1)*lightUnit <= uint64(v)*(8*rootUnit*rootUnit*rootUnit) {
			root++
		}
		t[v] = uint16(root)
	}
	return t
}()

func lightOf(c Colour) light { return light{lights[c[0]], lights[c[1]], lights[c[2]]} }

// lab converts from linear light.
func (c light) lab() lab {
	// The rows add up to 1, so the sums stay within the table.
	l := int32(roots[(27015*c[0]+35149*c[1]+3372*c[2])>>labShift])
	m := int32(roots[(13887*c[0]+44611*c[1]+7038*c[2])>>labShift])
	s := int32(roots[(5787*c[0]+18463*c[1]+41286*c[2])>>labShift])
	return lab{
		scaled(13792*int64(l) + 52011*int64(m) - 267*int64(s)),
		scaled(129630*int64(l) - 159160*int64(m) + 29530*int64(s)),
		scaled(1698*int64(l) + 51300*int64(m) - 52998*int64(s)),
	}
}

// scaled rounds a product of a factor and a root to units of lab.
func scaled(v int64) int32 {
	const shift = labShift + 14 - 12 // of the factor and the root, minus the shift of labUnit
	return int32((v + 1<<(shift-1)) >> shift)
}

// means is how many of the features are the mean colour.
const means = 3

// features describe how a cell or a tile looks: the coefficients of the discrete cosine transform
// of its 3×3 sub-cells in OKLab. The transform is orthonormal, so the squared distance of two lists
// of features is the sum of the squared distances of the nine colours. The features with the
// largest differences come first, so that a comparison can often end early: the lightness and the
// two colour axes of the mean, then the gradients of lightness.
//
// The mean is taken in linear light, as one sees it from afar.
type features [means * fine * fine]int16

// order has the place of every coefficient, as 9 × channel + 3 × down + across.
var order = [...]int{0, 9, 18, 1, 3, 10, 12, 19, 21, 2, 4, 6, 5, 7, 8, 11, 13, 15, 14, 16, 17, 20, 22, 24, 23, 25, 26}

// featuresOf computes the features of the colours of one cell, which are 9 or 1.
func featuresOf(colours []Colour) (f features) {
	var sum light
	var plane [means][fine * fine]int32
	for i, c := range colours {
		l := lightOf(c)
		for k := range sum {
			sum[k] += l[k]
		}
		if len(colours) > 1 {
			for k, v := range l.lab() {
				plane[k][i] = v
			}
		}
	}
	n := uint32(len(colours))
	mean := light{(sum[0] + n/2) / n, (sum[1] + n/2) / n, (sum[2] + n/2) / n}.lab()
	for k := range plane {
		transform(&plane[k])
		plane[k][0] = fine * mean[k]
	}
	for i, at := range order {
		f[i] = int16(plane[at/9][at%9])
	}
	return f
}

// transform is the orthonormal discrete cosine transform of 3×3 values.
func transform(v *[fine * fine]int32) {
	for i := 0; i < 9; i += 3 {
		v[i], v[i+1], v[i+2] = cosines(v[i], v[i+1], v[i+2])
	}
	for i := range 3 {
		v[i], v[i+3], v[i+6] = cosines(v[i], v[i+3], v[i+6])
	}
}

// cosines is the transform of three values, in fixed point.
func cosines(a, b, c int32) (mean, slope, bend int32) {
	const (
		shift     = 14
		rootThird = 9459  // 1/√3
		rootHalf  = 11585 // 1/√2
		rootSixth = 6689  // 1/√6
		half      = 1 << (shift - 1)
	)
	return ((a+b+c)*rootThird + half) >> shift, ((a-c)*rootHalf + half) >> shift, ((a-2*b+c)*rootSixth + half) >> shift
}

// distance is the squared distance of two lists of features, or some number above limit.
func distance(a, b *features, limit int32) int32 {
	d := square(a[0], b[0]) + square(a[1], b[1]) + square(a[2], b[2]) + square(a[3], b[3]) + square(a[4], b[4])
	if d > limit {
		return d
	}
	d += square(a[5], b[5]) + square(a[6], b[6]) + square(a[7], b[7]) + square(a[8], b[8]) + square(a[9], b[9]) +
		square(a[10], b[10]) + square(a[11], b[11])
	if d > limit {
		return d
	}
	return d + square(a[12], b[12]) + square(a[13], b[13]) + square(a[14], b[14]) + square(a[15], b[15]) + square(a[16], b[16]) +
		square(a[17], b[17]) + square(a[18], b[18]) + square(a[19], b[19]) + square(a[20], b[20]) + square(a[21], b[21]) +
		square(a[22], b[22]) + square(a[23], b[23]) + square(a[24], b[24]) + square(a[25], b[25]) + square(a[26], b[26])
}

func square(a, b int16) int32 {
	e := int32(a) - int32(b)
	return e * e
}

// tileFeatures computes the features of every tile.
func tileFeatures(library *tiles.Library, sub int) ([]features, error) {
	size := library.Size()
	list := make([]features, library.Len())
	r := image.Rect(0, 0, size, size)
	for i := range list {
		img := &image.RGBA{Pix: library.Tile(i).Pix, Stride: 4 * size, Rect: r}
		c, err := Measure(img, r, 1, 1)
		if err != nil {
			return nil, fmt.Errorf("choosing the tiles: %w", err)
		}
		list[i] = featuresOf(c.Colours)
		if sub == 1 || c.Sub == 1 {
			clear(list[i][means:]) // all but the mean
		}
	}
	return list, nil
}
