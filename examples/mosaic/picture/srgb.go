package picture

import (
	"math"
	"sync"
)

// Linear is a colour in linear light: the amounts of the red, green and blue
// sRGB primaries, each from 0 (none) to 1 (full). Unlike file values, amounts
// of light may be added and averaged. The zero value is black.
type Linear struct {
	R, G, B float64
}

// Decode8 gives the linear light, 0 to 1, of an 8-bit sRGB value. It is the
// electro-optical transfer function of IEC 61966-2-1, section 5.2.
func Decode8(v uint8) float64 { return decoded8[v] }

var decoded8 = func() (t [1 << 8]float64) {
	for i := range t {
		t[i] = eotf(float64(i) / 0xff)
	}
	return t
}()

// Decode16 is [Decode8] for a 16-bit sRGB value.
func Decode16(v uint16) float64 { return eotf(float64(v) / 0xffff) }

// Encode8 gives the 8-bit sRGB value nearest to an amount of linear light, by
// the inverse transfer function of IEC 61966-2-1. Amounts outside 0 to 1 are
// clamped; NaN gives 0. The conversions of products keep every machine from fusing them with the sums.
func Encode8(light float64) uint8 {
	switch {
	case !(light > 0):
		return 0
	case light >= 1:
		return 0xff
	case light <= 0.0031308:
		return uint8(float64(12.92*light*0xff) + 0.5)
	}
	return uint8(float64((float64(1.055*math.Pow(light, 1/2.4))-0.055)*0xff) + 0.5)
}

func eotf(v float64) float64 {
	if v <= 0.04045 {
		return v / 12.92
	}
	return math.Pow((v+0.055)/1.055, 2.4)
}

// unit is full light in fixed point. Sums of light are kept in integers because
// integer addition does not care about order: a cell measures the same to the
// last bit whether the picture was turned, sliced or whole. With 36 bits of
// fraction the error of one pixel is below 1e-11, and a cell of all 50 million
// pixels still fits a uint64.
const unit = 1 << 36

// light8 is the fixed-point light of each 8-bit sRGB value.
var light8 = func() (t [1 << 8]uint64) {
	for i := range t {
		t[i] = uint64(math.Round(decoded8[i] * unit))
	}
	return t
}()

// light16 is light8 for 16-bit values. At half a megabyte it is only built when
// a 16-bit picture turns up.
var light16 = sync.OnceValue(func() []uint64 {
	t := make([]uint64, 1<<16)
	for i := range t {
		t[i] = uint64(math.Round(Decode16(uint16(i)) * unit))
	}
	return t
})

// Plus adds a part of another colour.
func (c Linear) Plus(d Linear, part float64) Linear {
	return Linear{c.R + part*d.R, c.G + part*d.G, c.B + part*d.B}
}
