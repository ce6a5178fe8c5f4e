package layout

import "github.com/millrace/millrace/examples/mosaic/picture"

// Colours are compared in OKLab (Björn Ottosson, "A perceptual color space for image processing", 2020), in integers: the
// same on every machine, whatever its floating-point unit fuses or rounds.

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
	const shift = labShift + 14 - 12 // of the factor and the root, less that of labUnit
	return int32((v + 1<<(shift-1)) >> shift)
}
