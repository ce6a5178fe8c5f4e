package picture

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// The JPEG markers the scan looks at (ITU-T T.81, table B.1).
const (
	markerSOF0  = 0xc0 // baseline
	markerSOF2  = 0xc2 // progressive
	markerDHT   = 0xc4
	markerJPG   = 0xc8
	markerDAC   = 0xcc
	markerSOF15 = 0xcf
	markerRST0  = 0xd0
	markerSOI   = 0xd8
	markerEOI   = 0xd9
	markerSOS   = 0xda
	markerAPP0  = 0xe0
	markerAPP1  = 0xe1
	markerAPP2  = 0xe2
	markerAPP14 = 0xee
	markerTEM   = 0x01
)

var exifPrefix = []byte("Exif\x00\x00")

// jpeg walks the marker segments up to the first scan.
func (s *scanner) jpeg() (Header, error) {
	if _, err := s.take(2); err != nil {
		return Header{}, err
	}
	var (
		f       jpegFrame
		profile jpegProfile
	)
	h := Header{Format: "jpeg", orientation: upright}
	for {
		marker, err := s.jpegMarker()
		if err != nil {
			return Header{}, err
		}
		if marker == markerTEM || marker >= markerRST0 && marker < markerSOI {
			continue // these have no segment
		}
		if marker == markerEOI {
			return Header{}, fmt.Errorf("%w: the JPEG ends before its first pixel", ErrDamaged)
		}
		b, err := s.take(2)
		if err != nil {
			return Header{}, err
		}
		n := int(binary.BigEndian.Uint16(b)) - 2
		if n < 0 {
			return Header{}, fmt.Errorf("%w: a JPEG segment has no room for its own length", ErrDamaged)
		}
		seg, err := s.take(n)
		if err != nil {
			return Header{}, err
		}
		switch {
		case marker == markerSOS:
			if f.components == nil {
				return Header{}, fmt.Errorf("%w: the JPEG has pixels but no frame header", ErrDamaged)
			}
			h.Width, h.Height = f.width, f.height
			h.retained = f.pixelBytes()
			h.DecodeBytes = h.retained + f.scratchBytes()
			h.icc, h.space = profile.bytes(), f.space()
			return h, nil
		case marker >= markerSOF0 && marker <= markerSOF2:
			if err := f.parse(seg, marker == markerSOF2); err != nil {
				return Header{}, err
			}
		case marker > markerSOF2 && marker <= markerSOF15 && marker != markerDHT && marker != markerJPG && marker != markerDAC:
			return Header{}, fmt.Errorf("%w: the JPEG is lossless or arithmetic-coded, which Go cannot decode: save it as a baseline JPEG", ErrDamaged)
		case marker == markerAPP0:
			f.jfif = bytes.HasPrefix(seg, []byte("JFIF\x00"))
		case marker == markerAPP14:
			f.plain = len(seg) >= 12 && bytes.HasPrefix(seg, []byte("Adobe")) && seg[11] == 0
		case marker == markerAPP1 && bytes.HasPrefix(seg, exifPrefix):
			h.orientation = exifOrientation(seg[len(exifPrefix):])
		case marker == markerAPP2 && bytes.HasPrefix(seg, profilePrefix):
			profile.add(seg[len(profilePrefix):])
		}
	}
}

// jpegMarker finds the next marker. Like libjpeg and Go it steps over fill
// bytes and stray data.
func (s *scanner) jpegMarker() (byte, error) {
	prev := byte(0)
	for {
		b, err := s.take(1)
		if err != nil {
			return 0, err
		}
		if prev == 0xff && b[0] != 0xff && b[0] != 0 {
			return b[0], nil
		}
		prev = b[0]
	}
}

// jpegFrame is the part of a frame header that decides how much memory
// decoding takes.
type jpegFrame struct {
	width, height int
	progressive   bool
	jfif          bool
	plain         bool // an Adobe marker says: no colour transform
	components    []jpegComponent
}

type jpegComponent struct {
	id   byte
	h, v int // sampling factors
}

func (f *jpegFrame) parse(seg []byte, progressive bool) error {
	if len(seg) < 6 || len(seg) != 6+3*int(seg[5]) {
		return fmt.Errorf("%w: the JPEG frame header has a wrong length", ErrDamaged)
	}
	f.progressive = progressive
	f.height = int(binary.BigEndian.Uint16(seg[1:]))
	f.width = int(binary.BigEndian.Uint16(seg[3:]))
	f.components = nil
	for c := seg[6:]; len(c) > 0; c = c[3:] {
		p := jpegComponent{id: c[0], h: int(c[1] >> 4), v: int(c[1] & 15)}
		if p.h < 1 || p.h > 4 || p.v < 1 || p.v > 4 {
			return fmt.Errorf("%w: the JPEG has a sampling factor of %d×%d", ErrDamaged, p.h, p.v)
		}
		f.components = append(f.components, p)
	}
	switch len(f.components) {
	case 1:
		// A single component is not interleaved: its factors mean nothing (A.2.2).
		f.components[0].h, f.components[0].v = 1, 1
	case 3, 4:
	default:
		return fmt.Errorf("%w: the JPEG has %d colour components, which Go cannot decode", ErrDamaged, len(f.components))
	}
	return nil
}

// blocks counts the 8×8 blocks that image/jpeg allocates for component i.
func (f *jpegFrame) blocks(i int) int64 {
	h0, v0 := f.components[0].h, f.components[0].v
	mcus := int64((f.width+8*h0-1)/(8*h0)) * int64((f.height+8*v0-1)/(8*v0))
	return mcus * int64(f.components[i].h*f.components[i].v)
}

// planeBytes is the size of the decoded component planes: a byte a sample.
func (f *jpegFrame) planeBytes() (n int64) {
	for i := range f.components {
		n += 64 * f.blocks(i)
	}
	return n
}

// converted reports whether image/jpeg turns the planes into one packed image
// of 4 bytes a pixel at the end: it does so for CMYK and for plain RGB.
func (f *jpegFrame) converted() bool {
	c := f.components
	switch len(c) {
	case 4:
		return true
	case 3:
		return !f.jfif && (f.plain || c[0].id == 'R' && c[1].id == 'G' && c[2].id == 'B')
	}
	return false
}

func (f *jpegFrame) pixelBytes() int64 {
	if f.converted() {
		return 4 * int64(f.width) * int64(f.height)
	}
	return f.planeBytes()
}

// scratchBytes is what image/jpeg needs beside the picture it returns. A
// progressive JPEG brings every block a bit more precisely with each scan, so
// the decoder keeps 64 int32 coefficients per block of every component until
// the last scan.
func (f *jpegFrame) scratchBytes() (n int64) {
	if f.converted() {
		n += f.planeBytes()
	}
	if f.progressive {
		for i := range f.components {
			n += 64 * 4 * f.blocks(i)
		}
	}
	return n
}

// space is the colour space of the decoded pixels.
func (f *jpegFrame) space() string {
	switch len(f.components) {
	case 1:
		return spaceGray
	case 4:
		return spaceCMYK
	}
	return spaceRGB
}

var profilePrefix = []byte("ICC_PROFILE\x00")

// jpegProfile puts a colour profile together that is cut into segments, which may come in any order (ICC.1:2010,
// annex B.4).
type jpegProfile struct {
	parts map[byte][]byte // by number, from 1
	count byte
	size  int
	bad   bool
}

// add takes a segment without its prefix: its number, the number of all, and its part.
func (p *jpegProfile) add(seg []byte) {
	if p.parts == nil {
		p.parts = map[byte][]byte{}
	}
	if len(seg) < 2 || seg[0] < 1 || seg[0] > seg[1] || p.count != 0 && p.count != seg[1] || p.parts[seg[0]] != nil {
		p.bad = true
		return
	}
	p.count = seg[1]
	if p.size += len(seg); p.size > maxProfile {
		p.bad = true
		return
	}
	p.parts[seg[0]] = bytes.Clone(seg[2:])
}

// bytes is the whole profile, empty if a part of it is missing or wrong, and nil if there is none.
func (p *jpegProfile) bytes() []byte {
	if p.parts == nil {
		return nil
	}
	whole := []byte{}
	for i := 1; i <= int(p.count); i++ {
		part, ok := p.parts[byte(i)]
		if !ok || p.bad {
			return []byte{}
		}
		whole = append(whole, part...)
	}
	return whole
}
