package tiles

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

// labOf converts from linear light: to XYZ by the matrix of IEC 61966-2-1, and
// to CIELAB by the formulae of CIE 15, section 8.2.1.
func labOf(c picture.Linear) lab {
	x := labF((0.4124*c.R + 0.3576*c.G + 0.1805*c.B) / whiteX)
	y := labF((0.2126*c.R + 0.7152*c.G + 0.0722*c.B) / whiteY)
	z := labF((0.0193*c.R + 0.1192*c.G + 0.9505*c.B) / whiteZ)
	return lab{L: 116*y - 16, A: 500 * (x - y), B: 200 * (y - z)}
}

// labF is the cube root of CIE 15, with the straight piece near black.
func labF(t float64) float64 {
	const delta = 6.0 / 29
	if t > delta*delta*delta {
		return math.Cbrt(t)
	}
	return t/(3*delta*delta) + 4.0/29
}

// deltaE is the colour difference ΔE*ab of CIE 1976 (CIE 15, section 8.2.1.3):
// the Euclidean distance. A difference of about 2.3 is just noticeable.
func deltaE(a, b lab) float64 {
	return math.Hypot(math.Hypot(a.L-b.L, a.A-b.A), a.B-b.B)
}

func labOf8(r, g, b uint8) lab {
	return labOf(picture.Linear{R: picture.Decode8(r), G: picture.Decode8(g), B: picture.Decode8(b)})
}

// The values are those published for sRGB under D65, 2°, to two digits; tables
// differ in the last one by the digits of their matrix.
func TestLabReference(t *testing.T) {
	for _, c := range []struct {
		r, g, b uint8
		want    lab
	}{
		{0, 0, 0, lab{0, 0, 0}},
		{255, 255, 255, lab{100, 0, 0}},
		{119, 119, 119, lab{50.03, 0, 0}},
		{255, 0, 0, lab{53.24, 80.09, 67.20}},
		{0, 255, 0, lab{87.74, -86.18, 83.18}},
		{0, 0, 255, lab{32.30, 79.19, -107.86}},
		{0, 255, 255, lab{91.11, -48.08, -14.14}},
		{255, 0, 255, lab{60.32, 98.25, -60.83}},
		{255, 255, 0, lab{97.14, -21.56, 94.48}},
	} {
		if got := labOf8(c.r, c.g, c.b); deltaE(got, c.want) > 0.03 {
			t.Errorf("sRGB %d,%d,%d: got %.3f, want %v", c.r, c.g, c.b, got, c.want)
		}
	}
	for v := range 256 {
		if c := labOf8(uint8(v), uint8(v), uint8(v)); math.Abs(c.A) > 1e-9 || math.Abs(c.B) > 1e-9 {
			t.Errorf("grey %d: got %v, want A and B of 0", v, c)
		}
	}
	if d := deltaE(lab{50, 10, -10}, lab{53, 14, 2}); d != 13 {
		t.Errorf("ΔE: got %v, want 13", d)
	}
}

func TestLabInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Float64Range(0, 1)
		c := picture.Linear{R: v.Draw(t, "r"), G: v.Draw(t, "g"), B: v.Draw(t, "b")}
		back := labOf(c).light()
		if math.Abs(back.R-c.R)+math.Abs(back.G-c.G)+math.Abs(back.B-c.B) > 1e-8 {
			t.Fatalf("inverse: got %v, want %v", back, c)
		}
	})
}
