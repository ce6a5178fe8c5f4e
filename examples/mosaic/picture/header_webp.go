package picture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// The flags of the extended header of a WebP (RFC 9649, section 2.7).
const (
	webpAnimated = 1 << 1
	webpEXIF     = 1 << 3
)

// webp walks the chunks up to the first pixel data.
func (s *scanner) webp() (Header, error) {
	if _, err := s.take(12); err != nil {
		return Header{}, err
	}
	h := Header{Format: "webp", space: spaceRGB, orientation: upright}
	var (
		flags  byte
		canvas [2]int
		alpha  int64 // length of the compressed opacity, which comes first
	)
	for first := true; ; first = false {
		head, err := s.r.Peek(8)
		if err != nil {
			return Header{}, err
		}
		name, n := string(head[:4]), int64(binary.LittleEndian.Uint32(head[4:]))
		switch {
		case name == "VP8 " || name == "VP8L":
			if err := s.webpFrame(&h, name, n, alpha); err != nil {
				return Header{}, err
			}
			if canvas != [2]int{} && canvas != [2]int{h.Width, h.Height} {
				return Header{}, fmt.Errorf("%w: the WebP declares two sizes: %d×%d and %d×%d", ErrDamaged, canvas[0], canvas[1], h.Width, h.Height)
			}
			h.exifBehind = flags&webpEXIF != 0
			if h.exifBehind && s.behind && h.check() == nil {
				h.orientation, err = behindWebP(s.r, n, h.orientation)
			}
			return h, err
		case n > maxHeader:
			return Header{}, errLongHeader
		}
		chunk, err := s.take(int(8 + n + n&1))
		if err != nil {
			return Header{}, err
		}
		chunk = chunk[8 : 8+n]
		switch name {
		case "VP8X":
			if !first || n != 10 {
				return Header{}, fmt.Errorf("%w: the WebP has a header of %d bytes", ErrDamaged, n)
			}
			flags = chunk[0]
			canvas = [2]int{1 + int(le24(chunk[4:])), 1 + int(le24(chunk[7:]))}
			if flags&webpAnimated != 0 {
				return Header{}, &UnsupportedError{Format: "animated WebP", Advice: "save one frame of it as PNG or JPEG"}
			}
		case "ALPH":
			alpha = n
		case "ICCP":
			h.icc = bytes.Clone(chunk)
		case "EXIF":
			h.orientation = exifOrientation(chunk)
		}
	}
}

func le24(b []byte) uint32 { return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 }

// webpFrame reads the size from the beginning of the pixels, without taking the chunk.
func (s *scanner) webpFrame(h *Header, name string, n, alpha int64) error {
	const need = 8 + 10
	b, err := s.r.Peek(need)
	if err != nil {
		return err
	}
	b = b[8:]
	lossless := name == "VP8L"
	switch {
	case lossless && b[0] == 0x2f:
		bits := binary.LittleEndian.Uint32(b[1:])
		h.Width, h.Height = 1+int(bits&0x3fff), 1+int(bits>>14&0x3fff)
	case !lossless && b[0]&1 == 0 && b[3] == 0x9d && b[4] == 0x01 && b[5] == 0x2a:
		h.Width, h.Height = int(binary.LittleEndian.Uint16(b[6:])&0x3fff), int(binary.LittleEndian.Uint16(b[8:])&0x3fff)
	default:
		return fmt.Errorf("%w: the WebP has no picture where it says", ErrDamaged)
	}
	h.retained, h.DecodeBytes = webpBytes(int64(h.Width), int64(h.Height), lossless, n, alpha)
	return nil
}

// webpBytes estimates the memory for the picture that x/image/webp returns, and for decoding it. n and
// alpha are the declared lengths of the compressed pixels and opacity.
func webpBytes(width, height int64, lossless bool, n, alpha int64) (retained, decode int64) {
	if width > 1<<31-1 || height > 1<<31-1 || width*height > MaxPixels {
		return 0, 0 // refused for its pixel count anyway
	}
	pixels := width * height
	// A lossless picture is 4 bytes a pixel. Its transforms need up to 3 more; up to 2,600 sets of Huffman
	// trees need about 50 kB each, of which a byte of the file describes at most some 256.
	const trees = 130_000_000
	losslessBytes := func(n int64) int64 { return 7*pixels + min(trees, 256*n) + 64<<10 }
	if lossless {
		return 4 * pixels, losslessBytes(n)
	}
	// Whole macroblocks of 16×16, 4:2:0, with 6 bytes of state each, and the compressed data, of which the decoder
	// takes at most 8 times 16 MiB.
	blocks := (width + 15) / 16 * ((height + 15) / 16)
	retained = blocks * 384
	decode = retained + 6*blocks + 16*(width+15)/16 + min(n, 8<<24) + 64<<10
	if alpha > 0 {
		// It is decoded first, as a lossless picture whose green is the opacity.
		retained += pixels
		decode += alpha + pixels + losslessBytes(alpha)
	}
	return retained, decode
}

// behindWebP looks for the EXIF chunk behind n bytes of pixels. r begins with the chunk of the pixels. A file
// that ends early is left to the decoder.
func behindWebP(r io.Reader, n int64, otherwise orientation) (orientation, error) {
	w := newWebPWatcher(r, 0)
	_, err := io.CopyN(io.Discard, w, n+maxHeader)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return w.orientation(otherwise), err
}
