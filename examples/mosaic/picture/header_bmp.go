package picture

import (
	"encoding/binary"
	"fmt"
)

// The headers that follow the 14 bytes of the file header, by their length. x/image reads the last three.
var bmpHeaders = map[uint32]bool{12: false, 16: false, 64: false, 52: false, 56: false, 40: true, 108: true, 124: true}

const (
	bmpUncompressed = 0
	bmpBitFields    = 3

	adviceBMP = "save it as PNG first"
)

// isBMP tells a BMP from a text that begins with BM.
func isBMP(b []byte) bool {
	if len(b) < 18 || string(b[:2]) != "BM" {
		return false
	}
	_, known := bmpHeaders[binary.LittleEndian.Uint32(b[14:])]
	return known
}

// bmp reads the file header and the info header.
func (s *scanner) bmp() (Header, error) {
	b, err := s.take(18)
	if err != nil {
		return Header{}, err
	}
	n := binary.LittleEndian.Uint32(b[14:])
	if !bmpHeaders[n] {
		return Header{}, &UnsupportedError{fmt.Sprintf("BMP with a header of %d bytes", n), adviceBMP}
	}
	if b, err = s.take(int(n) - 4); err != nil {
		return Header{}, err
	}
	width, height := int64(int32(binary.LittleEndian.Uint32(b))), int64(int32(binary.LittleEndian.Uint32(b[4:])))
	if height < 0 {
		height = -height // the rows run from top to bottom
	}
	if width < 0 || width > 1<<31-1 || height > 1<<31-1 {
		return Header{}, fmt.Errorf("%w: the BMP declares an impossible size", ErrDamaged)
	}
	bits, compression := binary.LittleEndian.Uint16(b[10:]), binary.LittleEndian.Uint32(b[12:])
	if compression != bmpUncompressed && (compression != bmpBitFields || n == 40) {
		return Header{}, &UnsupportedError{"compressed BMP", adviceBMP}
	}
	pixel := int64(4)
	switch bits {
	case 1, 2, 4, 8:
		pixel = 1
	case 24, 32:
	default:
		return Header{}, &UnsupportedError{fmt.Sprintf("BMP with %d bits a pixel", bits), adviceBMP}
	}
	h := Header{Format: "bmp", Width: int(width), Height: int(height), space: spaceRGB, orientation: upright}
	if width*height <= MaxPixels {
		h.retained = width * height * pixel
		h.DecodeBytes = h.retained + 4*width + 16<<10 // a row and the palette
	}
	return h, nil
}
