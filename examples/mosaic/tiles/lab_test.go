package tiles

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/examples/mosaic/picture"
)

func labOf8(r, g, b uint8) Lab {
	return LabOf(picture.Linear{R: picture.Decode8(r), G: picture.Decode8(g), B: picture.Decode8(b)})
}

// The values are those published for sRGB under D65, 2°, to two digits; tables
// differ in the last one by the digits of their matrix.
func TestLabReference(t *testing.T) {
	for _, c := range []struct {
		r, g, b uint8
		want    Lab
	}{
		{0, 0, 0, Lab{0, 0, 0}},
		{255, 255, 255, Lab{100, 0, 0}},
		{119, 119, 119, Lab{50.03, 0, 0}},
		{255, 0, 0, Lab{53.24, 80.09, 67.20}},
		{0, 255, 0, Lab{87.74, -86.18, 83.18}},
		{0, 0, 255, Lab{32.30, 79.19, -107.86}},
		{0, 255, 255, Lab{91.11, -48.08, -14.14}},
		{255, 0, 255, Lab{60.32, 98.25, -60.83}},
		{255, 255, 0, Lab{97.14, -21.56, 94.48}},
	} {
		if got := labOf8(c.r, c.g, c.b); DeltaE(got, c.want) > 0.03 {
			t.Errorf("sRGB %d,%d,%d: got %.3f, want %v", c.r, c.g, c.b, got, c.want)
		}
	}
	for v := range 256 {
		if c := labOf8(uint8(v), uint8(v), uint8(v)); math.Abs(c.A) > 1e-9 || math.Abs(c.B) > 1e-9 {
			t.Errorf("grey %d: got %v, want A and B of 0", v, c)
		}
	}
	if d := DeltaE(Lab{50, 10, -10}, Lab{53, 14, 2}); d != 13 {
		t.Errorf("ΔE: got %v, want 13", d)
	}
}

func TestLabInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Float64Range(0, 1)
		c := picture.Linear{R: v.Draw(t, "r"), G: v.Draw(t, "g"), B: v.Draw(t, "b")}
		back := LabOf(c).light()
		if math.Abs(back.R-c.R)+math.Abs(back.G-c.G)+math.Abs(back.B-c.B) > 1e-8 {
			t.Fatalf("inverse: got %v, want %v", back, c)
		}
	})
}
