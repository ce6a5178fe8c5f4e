package picture

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const pngSignature = "\x89PNG\r\n\x1a\n"

// The colour types of a PNG (PNG specification, table 11.1).
const (
	pngGray      = 0
	pngTrue      = 2
	pngIndexed   = 3
	pngGrayAlpha = 4
	pngTrueAlpha = 6
)

// png reads IHDR and walks the chunks up to the first pixel data.
func (s *scanner) png() (Header, error) {
	b, err := s.take(len(pngSignature) + 8 + 13 + 4)
	if err != nil {
		return Header{}, err
	}
	b = b[len(pngSignature):]
	if binary.BigEndian.Uint32(b) != 13 || string(b[4:8]) != "IHDR" {
		return Header{}, fmt.Errorf("%w: the PNG does not start with its header", ErrDamaged)
	}
	width, height := binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
	if width > 1<<31-1 || height > 1<<31-1 {
		return Header{}, fmt.Errorf("%w: the PNG declares an impossible size", ErrDamaged)
	}
	depth, kind, interlaced := int(b[16]), int(b[17]), b[20] != 0
	h := Header{Format: "png", Width: int(width), Height: int(height), space: spaceRGB, orientation: upright}
	if kind == pngGray || kind == pngGrayAlpha {
		h.space = spaceGray
	}

	transparent := false
chunks:
	for {
		head, err := s.r.Peek(8)
		if err != nil {
			return Header{}, err
		}
		n, name := binary.BigEndian.Uint32(head), string(head[4:8])
		switch {
		case name == "IDAT" || name == "IEND":
			break chunks
		case n > maxHeader:
			transparent = true // the scan ends here, so assume the worst
			break chunks
		}
		chunk, err := s.take(8 + int(n) + 4)
		switch {
		case errors.Is(err, errLongHeader):
			transparent = true
			break chunks
		case err != nil:
			return Header{}, err
		case name == "tRNS":
			transparent = true
		case name == "eXIf":
			h.orientation = exifOrientation(chunk[8 : 8+n])
		case name == "iCCP" && h.icc == nil:
			h.icc = pngProfile(chunk[8 : 8+n])
		}
	}
	h.retained, h.DecodeBytes = pngBytes(int64(width), int64(height), depth, kind, interlaced, transparent)
	return h, nil
}

// pngBytes estimates the memory for the picture that image/png returns, and for
// decoding it.
func pngBytes(width, height int64, depth, kind int, interlaced, transparent bool) (retained, decode int64) {
	pixel := int64(4) // RGBA or NRGBA
	switch kind {
	case pngIndexed:
		pixel = 1
	case pngGray:
		if !transparent {
			pixel = 1
		}
	}
	if depth == 16 {
		pixel *= 2
	}
	// width×height cannot overflow: each is below 2^31; the products with small
	// factors can, for sizes that are refused for their pixel count anyway.
	if width*height > MaxPixels {
		return 0, 0
	}
	retained = width * height * pixel
	decode = retained
	if interlaced {
		// Each of the seven passes is decoded into an image of its own before it
		// is merged; the last one has half the pixels.
		decode += retained / 2
	}
	// The decoder keeps two rows and the encoder of a slice six. That matters only for a picture with
	// one very long row.
	decode += 8 * width * pixel
	return retained, decode
}

// pngProfile unpacks an iCCP chunk: a name, a zero, the method 0, and the profile compressed by zlib. What is wrong with
// the chunk is wrong with the profile.
func pngProfile(chunk []byte) []byte {
	_, packed, _ := bytes.Cut(chunk, []byte{0})
	if len(packed) < 1 || packed[0] != 0 {
		return []byte{}
	}
	r, err := zlib.NewReader(bytes.NewReader(packed[1:]))
	if err != nil {
		return []byte{}
	}
	profile, err := io.ReadAll(io.LimitReader(r, maxProfile+1))
	if err != nil {
		return []byte{}
	}
	return profile
}
