package picture

import (
	"math"
	"testing"
)

func TestTransferFunction(t *testing.T) {
	// Values of IEC 61966-2-1 worked out by hand: black, white, the end of the
	// straight piece, and the grey that reflects about a fifth.
	for v, want := range map[uint8]float64{0: 0, 255: 1, 10: 0.0030352698354883, 11: 0.0033465357638992, 128: 0.2158605001138992} {
		if got := Decode8(v); math.Abs(got-want) > 1e-12 {
			t.Errorf("Decode8(%d) = %.16f, want %.16f", v, got, want)
		}
	}
	for i := range 256 {
		v := uint8(i)
		if got := Encode8(Decode8(v)); got != v {
			t.Errorf("Encode8(Decode8(%d)): got %d, want %d", v, got, v)
		}
		if Decode8(v) != Decode16(uint16(i)*257) {
			t.Errorf("Decode8(%d) differs from Decode16; want Decode8(v) %v", v, Decode16(uint16(i)*257))
		}
		// The boundary between two values lies half way between them in sRGB.
		if i > 0 {
			mid := eotf((float64(i) - 0.5) / 255)
			if Encode8(mid*(1-1e-9)) != v-1 || Encode8(mid*(1+1e-9)) != v {
				t.Errorf("Encode8 around the boundary of %d and %d: got another value, want the nearest", v-1, v)
			}
		}
	}
	if Encode8(-1) != 0 || Encode8(2) != 255 || Encode8(math.NaN()) != 0 {
		t.Error("Encode8 outside 0 to 1: got another value, want 0 or 255")
	}
}
