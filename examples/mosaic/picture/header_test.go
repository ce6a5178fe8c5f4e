package picture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"strings"
	"testing"
)

// jpegHeader is a JPEG up to its first scan: sampling has one 0xHV per component.
func jpegHeader(w, h int, sof byte, adobe int, sampling ...byte) []byte {
	b := []byte{0xff, markerSOI}
	if adobe >= 0 {
		b = append(b, 0xff, markerAPP14, 0, 14)
		b = append(b, "Adobe\x00\x64\x00\x00\x00\x00"...)
		b = append(b, byte(adobe))
	}
	b = append(b, 0xff, sof)
	b = binary.BigEndian.AppendUint16(b, uint16(8+3*len(sampling)))
	b = append(b, 8)
	b = binary.BigEndian.AppendUint16(b, uint16(h))
	b = binary.BigEndian.AppendUint16(b, uint16(w))
	b = append(b, byte(len(sampling)))
	for i, s := range sampling {
		b = append(b, byte(i+1), s, 0)
	}
	return append(b, 0xff, markerSOS, 0, 2)
}

func pngHeader(w, h uint32, depth, kind, interlace byte, chunks ...[]byte) []byte {
	d := binary.BigEndian.AppendUint32(nil, w)
	d = binary.BigEndian.AppendUint32(d, h)
	b := append([]byte(pngSignature), pngChunk("IHDR", append(d, depth, kind, 0, 0, interlace))...)
	for _, c := range chunks {
		b = append(b, c...)
	}
	return append(b, "\x00\x00\x00\x01IDAT"...)
}

func TestInspectEstimatesMemory(t *testing.T) {
	const mp = 1_000_000
	for name, c := range map[string]struct {
		file     []byte
		lo, hi   int64 // MB
		tooLarge bool
	}{
		"baseline 4:2:0":                {file: jpegHeader(8000, 6250, markerSOF0, -1, 0x22, 0x11, 0x11), lo: 75, hi: 76},
		"baseline 4:4:4":                {file: jpegHeader(8000, 6250, markerSOF0, -1, 0x11, 0x11, 0x11), lo: 150, hi: 151},
		"baseline grey":                 {file: jpegHeader(8000, 6250, markerSOF0, -1, 0x22), lo: 50, hi: 51},
		"baseline RGB":                  {file: jpegHeader(8000, 6250, markerSOF0, 0, 0x11, 0x11, 0x11), lo: 350, hi: 351},
		"baseline CMYK":                 {file: jpegHeader(8000, 6250, markerSOF0, 0, 0x11, 0x11, 0x11, 0x11), lo: 400, hi: 401},
		"progressive 4:2:0":             {file: jpegHeader(8000, 6250, markerSOF2, -1, 0x22, 0x11, 0x11), lo: 375, hi: 376},
		"progressive 4:2:2":             {file: jpegHeader(8000, 6250, markerSOF2, -1, 0x21, 0x11, 0x11), lo: 500, hi: 501},
		"progressive 4:4:4":             {file: jpegHeader(8000, 6250, markerSOF2, -1, 0x11, 0x11, 0x11), tooLarge: true},
		"progressive 4:4:4, 40 MP":      {file: jpegHeader(8000, 5000, markerSOF2, -1, 0x11, 0x11, 0x11), lo: 600, hi: 601},
		"progressive CMYK":              {file: jpegHeader(8000, 6250, markerSOF2, 2, 0x11, 0x11, 0x11, 0x11), tooLarge: true},
		"progressive CMYK, 25 MP":       {file: jpegHeader(5000, 5000, markerSOF2, 2, 0x11, 0x11, 0x11, 0x11), lo: 600, hi: 601},
		"JPEG of 50.008 MP":             {file: jpegHeader(8000, 6251, markerSOF0, -1, 0x22, 0x11, 0x11), tooLarge: true},
		"PNG RGB":                       {file: pngHeader(8000, 6250, 8, pngTrue, 0), lo: 200, hi: 201},
		"PNG RGBA":                      {file: pngHeader(8000, 6250, 8, pngTrueAlpha, 0), lo: 200, hi: 201},
		"PNG grey":                      {file: pngHeader(8000, 6250, 8, pngGray, 0), lo: 50, hi: 51},
		"PNG grey, one transparent":     {file: pngHeader(8000, 6250, 8, pngGray, 0, pngChunk("tRNS", []byte{0, 0})), lo: 200, hi: 201},
		"PNG indexed":                   {file: pngHeader(8000, 6250, 4, pngIndexed, 0), lo: 50, hi: 51},
		"PNG 16 bits":                   {file: pngHeader(8000, 6250, 16, pngTrue, 0), lo: 400, hi: 401},
		"PNG 16 bits, interlaced":       {file: pngHeader(8000, 6250, 16, pngTrueAlpha, 1), lo: 600, hi: 601},
		"PNG of one row, 16 bits":       {file: pngHeader(50*mp, 1, 16, pngTrueAlpha, 0), tooLarge: true},
		"PNG of 50 MP and a pixel":      {file: pngHeader(50*mp+1, 1, 8, pngTrue, 0), tooLarge: true},
		"PNG of the largest size":       {file: pngHeader(1<<31-1, 1<<31-1, 8, pngTrue, 0), tooLarge: true},
		"GIF":                           {file: []byte("GIF89a\x40\x1f\x6a\x18\x00\x00\x00"), lo: 300, hi: 301},
		"a PNG with a very long remark": {file: pngHeader(8, 8, 8, pngGray, 0, []byte("\x7f\xff\xff\xfftEXt")), lo: 0, hi: 1},
	} {
		h, err := Inspect(bytes.NewReader(c.file))
		switch {
		case c.tooLarge:
			if !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "limit") {
				t.Errorf("%s: got error %v, want ErrTooLarge", name, err)
			}
		case err != nil:
			t.Errorf("%s: got the error %v, want none", name, err)
		case h.DecodeBytes < c.lo*mp || h.DecodeBytes > c.hi*mp:
			t.Errorf("%s: DecodeBytes: got %d, want %d to %d MB", name, h.DecodeBytes, c.lo, c.hi)
		}
	}
}

func TestInspectRefuses(t *testing.T) {
	for name, file := range map[string][]byte{
		"arithmetic coding":    jpegHeader(10, 10, 0xc9, -1, 0x11),
		"no width":             jpegHeader(0, 10, markerSOF0, -1, 0x11),
		"no height":            jpegHeader(10, 0, markerSOF0, -1, 0x11),
		"two components":       jpegHeader(10, 10, markerSOF0, -1, 0x11, 0x11),
		"sampling of zero":     jpegHeader(10, 10, markerSOF0, -1, 0x01, 0x11, 0x11),
		"scan before frame":    {0xff, markerSOI, 0xff, markerSOS, 0, 2},
		"end before frame":     {0xff, markerSOI, 0xff, markerEOI},
		"segment of one byte":  {0xff, markerSOI, 0xff, markerAPP0, 0, 1},
		"PNG of no size":       pngHeader(0, 5, 8, pngGray, 0),
		"PNG of negative size": pngHeader(1<<31, 5, 8, pngGray, 0),
		"PNG without header":   append([]byte(pngSignature), pngChunk("IEND", make([]byte, 13))...),
		"endless metadata":     append([]byte{0xff, markerSOI}, bytes.Repeat(append([]byte{0xff, markerAPP1, 0xff, 0xff}, make([]byte, 0xfffd)...), 300)...),
	} {
		if _, err := Inspect(bytes.NewReader(file)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: got error %v, want ErrDamaged", name, err)
		}
	}
}

// The estimate must hold for what the decoders really return.
func TestInspectKnowsWhatIsKept(t *testing.T) {
	for name, img := range photos(64, 48) {
		for format, file := range map[string][]byte{"jpeg": asJPEG(t, img), "png": asPNG(t, img)} {
			h, err := Inspect(bytes.NewReader(file))
			if err != nil {
				t.Fatal(err)
			}
			got, err := Decode(bytes.NewReader(file))
			if err != nil {
				t.Fatal(err)
			}
			var n int
			switch m := got.(type) {
			case *image.YCbCr:
				n = len(m.Y) + len(m.Cb) + len(m.Cr)
			case *image.Gray:
				n = len(m.Pix)
			case *image.RGBA:
				n = len(m.Pix)
			case *image.NRGBA:
				n = len(m.Pix)
			case *image.Paletted:
				n = len(m.Pix)
			case *image.Gray16:
				n = len(m.Pix)
			case *image.RGBA64:
				n = len(m.Pix)
			case *image.NRGBA64:
				n = len(m.Pix)
			}
			if int64(n) != h.retained {
				t.Errorf("%s as %s: bytes of the decoded picture: got %d, want %d", name, format, n, h.retained)
			}
		}
	}
}
