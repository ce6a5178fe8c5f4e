package tiles

import "github.com/millrace/millrace/examples/mosaic/picture"

// lab is a colour in CIELAB (CIE 15) under D65 for the 2° observer: lightness L
// from 0 to 100, A from green to red, B from blue to yellow. The zero value is
// black.
type lab struct {
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

// light converts to linear light, without any limit: by the inverse of the formulae of CIE 15, section 8.2.1, and of the matrix of
// IEC 61966-2-1.
func (a lab) light() picture.Linear {
	inverse := func(t float64) float64 {
		const delta = 6.0 / 29
		if t > delta {
			return t * t * t
		}
		return 3 * delta * delta * (t - 4.0/29)
	}
	fy := (a.L + 16) / 116
	x, y, z := whiteX*inverse(fy+a.A/500), whiteY*inverse(fy), whiteZ*inverse(fy-a.B/200)
	return picture.Linear{
		R: 3.2406254773*x - 1.5372079722*y - 0.4986285987*z,
		G: -0.9689307147*x + 1.8757560609*y + 0.0415175238*z,
		B: 0.0557101204*x - 0.2040210506*y + 1.0569959423*z,
	}
}
