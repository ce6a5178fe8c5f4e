package tiles

import (
	"math"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// Lab is a colour in CIELAB (CIE 15) under D65 for the 2° observer: lightness L
// from 0 to 100, A from green to red, B from blue to yellow. The zero value is
// black.
type Lab struct {
	L, A, B float64
}

// white is the XYZ of R=G=B=1 with the matrix of IEC 61966-2-1, which is D65 to
// the four digits of that matrix. Taking the sums of its rows, rather than a
// longer D65 from another table, makes every grey come out with A=B=0.
const (
	whiteX = 0.4124 + 0.3576 + 0.1805
	whiteY = 0.2126 + 0.7152 + 0.0722
	whiteZ = 0.0193 + 0.1192 + 0.9505
)

// LabOf converts from linear light: to XYZ by the matrix of IEC 61966-2-1, and
// to CIELAB by the formulae of CIE 15, section 8.2.1.
func LabOf(c picture.Linear) Lab {
	x := labF((0.4124*c.R + 0.3576*c.G + 0.1805*c.B) / whiteX)
	y := labF((0.2126*c.R + 0.7152*c.G + 0.0722*c.B) / whiteY)
	z := labF((0.0193*c.R + 0.1192*c.G + 0.9505*c.B) / whiteZ)
	return Lab{L: 116*y - 16, A: 500 * (x - y), B: 200 * (y - z)}
}

// labF is the cube root of CIE 15, with the straight piece near black.
func labF(t float64) float64 {
	const delta = 6.0 / 29
	if t > delta*delta*delta {
		return math.Cbrt(t)
	}
	return t/(3*delta*delta) + 4.0/29
}

// DeltaE is the colour difference ΔE*ab of CIE 1976 (CIE 15, section 8.2.1.3):
// the Euclidean distance. A difference of about 2.3 is just noticeable.
func DeltaE(a, b Lab) float64 {
	return math.Sqrt(squaredLength([3]float64{a.L - b.L, a.A - b.A, a.B - b.B}))
}
