package picture

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf16"
)

// maxProfile bounds a colour profile. Those of printers reach some 3 MB; those that are applied have a few kB.
const maxProfile = 4 << 20

// The colour spaces of profiles and pictures.
const (
	spaceRGB  = "RGB "
	spaceGray = "GRAY"
	spaceCMYK = "CMYK"
)

// readProfile decides what becomes of the colour profile of a picture. A profile
// that is broken, or cannot be applied, is never an error: the pixels are then taken as sRGB.
func (h *Header) readProfile() {
	if h.icc == nil {
		return
	}
	p, err := parseICC(h.icc)
	if err == nil {
		h.profile, err = p.transform(h.space)
	}
	h.icc = nil
	switch {
	case err != nil:
		h.ProfileIgnored = fmt.Sprintf("its colour profile %sis ignored: %v", quoted(p.name), err)
	case h.profile != nil:
		h.Profile = p.name
		if h.Profile == "" {
			h.Profile = "unnamed"
		}
	}
}

func quoted(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf("%q ", name)
}

// iccProfile is a profile of three primaries and their tone curves, or of one tone curve for greys (ICC.1:2010,
// sections 8.3.3 and 8.4.3).
type iccProfile struct {
	name   string
	space  string
	lab    bool          // the curves lead to CIELAB, not XYZ
	table  bool          // it has tables of colours, which are not read
	matrix [3][3]float64 // columns: XYZ of the primaries under D50
	curves []curve       // one for each channel; none if it has no primaries
}

// curve gives the amount of light, 0 to 1, of a value of 0 to 1.
type curve func(v float64) float64

var errProfile = errors.New("it is damaged")

// parseICC reads what matters of a profile. It trusts no number in it. The profile has its name even if there
// is an error.
func parseICC(b []byte) (iccProfile, error) {
	var p iccProfile
	if len(b) < 132 || len(b) > maxProfile || string(b[36:40]) != "acsp" {
		return p, errProfile
	}
	p.space = string(b[16:20])
	p.lab = string(b[20:24]) == "Lab "
	n := binary.BigEndian.Uint32(b[128:])
	if n > 1000 || int(n)*12 > len(b)-132 {
		return p, errProfile
	}
	tags := map[string][]byte{}
	for list := b[132 : 132+12*n]; len(list) > 0; list = list[12:] {
		offset, size := uint64(binary.BigEndian.Uint32(list[4:])), uint64(binary.BigEndian.Uint32(list[8:]))
		if offset+size <= uint64(len(b)) {
			tags[string(list[:4])] = b[offset : offset+size]
		}
	}
	p.name = iccText(tags["desc"])
	p.table = tags["A2B0"] != nil || tags["A2B1"] != nil
	var names []string
	switch p.space {
	case spaceGray:
		names = []string{"kTRC"}
	case spaceRGB:
		names = []string{"rTRC", "gTRC", "bTRC"}
		for i, tag := range []string{"rXYZ", "gXYZ", "bXYZ"} {
			t := tags[tag]
			if len(t) < 20 {
				return p, nil // a profile without primaries
			}
			for row := range 3 {
				p.matrix[row][i] = fixed16(t[8+4*row:])
			}
		}
	}
	for _, name := range names {
		if tags[name] == nil {
			p.curves = nil
			break
		}
		c, err := parseCurve(tags[name])
		if err != nil {
			return p, err
		}
		p.curves = append(p.curves, c)
	}
	return p, nil
}

// fixed16 reads an s15Fixed16Number.
func fixed16(b []byte) float64 { return float64(int32(binary.BigEndian.Uint32(b))) / (1 << 16) }

// parseCurve reads a curveType or a parametricCurveType (sections 10.5 and 10.15).
func parseCurve(b []byte) (curve, error) {
	if len(b) < 12 {
		return nil, errProfile
	}
	switch string(b[:4]) {
	case "curv":
		n := uint64(binary.BigEndian.Uint32(b[8:]))
		if n > 1<<16 || 2*n > uint64(len(b)-12) {
			return nil, errProfile
		}
		table := b[12 : 12+2*n]
		switch n {
		case 0:
			return func(v float64) float64 { return v }, nil
		case 1:
			gamma := float64(be16(table)) / (1 << 8)
			return func(v float64) float64 { return math.Pow(v, gamma) }, nil
		}
		return sampled(table), nil
	case "para":
		return parametric(int(be16(b[8:])), b[12:])
	}
	return nil, errProfile
}

// sampled is a curve through values at equal distances.
func sampled(table []byte) curve {
	last := len(table)/2 - 1
	return func(v float64) float64 {
		at := v * float64(last)
		i := min(int(at), last-1)
		low, high := float64(be16(table[2*i:])), float64(be16(table[2*i+2:]))
		return (low + (high-low)*(at-float64(i))) / 0xffff
	}
}

// parametric is one of the five functions of table 67.
func parametric(kind int, b []byte) (curve, error) {
	counts := []int{1, 3, 4, 5, 7}
	if kind >= len(counts) || len(b) < 4*counts[kind] {
		return nil, errProfile
	}
	var p [7]float64
	for i := range counts[kind] {
		p[i] = fixed16(b[4*i:])
	}
	g, a, k, c, d, e, f := p[0], p[1], p[2], p[3], p[4], p[5], p[6]
	switch kind {
	case 0:
		return func(v float64) float64 { return math.Pow(v, g) }, nil
	case 1, 2: // below its root the power is 0
		offset := 0.0
		if kind == 2 {
			offset = c
		}
		return func(v float64) float64 { return math.Pow(max(a*v+k, 0), g) + offset }, nil
	}
	return func(v float64) float64 {
		if v < d {
			return c*v + f
		}
		return math.Pow(max(a*v+k, 0), g) + e
	}, nil
}

// iccText reads the name of a profile: a textDescriptionType or a multiLocalizedUnicodeType.
func iccText(b []byte) string {
	if len(b) < 12 {
		return ""
	}
	var s string
	n := uint64(binary.BigEndian.Uint32(b[8:]))
	switch string(b[:4]) {
	case "desc":
		s = string(b[12 : 12+min(n, uint64(len(b)-12))])
	case "mluc":
		if n < 1 || len(b) < 28 {
			return ""
		}
		size, at := uint64(binary.BigEndian.Uint32(b[20:])), uint64(binary.BigEndian.Uint32(b[24:]))
		if at+size > uint64(len(b)) || size > 1000 {
			return ""
		}
		var units []uint16
		for t := b[at : at+size]; len(t) >= 2; t = t[2:] {
			units = append(units, be16(t))
		}
		s = string(utf16.Decode(units))
	}
	s, _, _ = strings.Cut(s, "\x00")
	s = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	return strings.TrimSpace(strings.ToValidUTF8(s[:min(len(s), 80)], ""))
}
