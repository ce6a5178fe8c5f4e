package picture

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"io"
	"runtime"
	"strconv"
	"sync"

	"github.com/bep/imagemeta"
	"github.com/kovidgoyal/imaging/prism/adobergb"
	"github.com/kovidgoyal/imaging/prism/ciexyz"
	"github.com/kovidgoyal/imaging/prism/displayp3"
	"github.com/kovidgoyal/imaging/prism/meta/icc"
	"github.com/kovidgoyal/imaging/prism/meta/jpegmeta"
	"github.com/kovidgoyal/imaging/prism/srgb"
	"golang.org/x/image/draw"
	"golang.org/x/image/math/f64"
)

// orientation is the EXIF tag 0x0112 (CIPA DC-008, section 4.6.5.1.6): how the stored picture has to be turned to
// stand upright, 1 to 8. Broken metadata gives 1, because a photograph must not be refused for it. A WebP has its EXIF block
// in a chunk of its own.
func (s *source) orientation(format string, webp []byte) (o int) {
	o = 1
	var r io.ReadSeeker = s
	if format == "webp" {
		format, r = "tiff", bytes.NewReader(webp)
	}
	f, ok := map[string]imagemeta.ImageFormat{
		"jpeg": imagemeta.JPEG, "png": imagemeta.PNG, "tiff": imagemeta.TIFF,
	}[format]
	if !ok || s.rewind() != nil {
		return o
	}
	defer func() { _ = recover() }() // imagemeta parses untrusted bytes
	_, _ = imagemeta.Decode(imagemeta.Options{
		R:           r,
		ImageFormat: f,
		Sources:     imagemeta.EXIF,
		ShouldHandleTag: func(t imagemeta.TagInfo) bool {
			// IFD1 describes the thumbnail, which has an orientation of its own.
			return t.Tag == "Orientation" && t.Namespace == "IFD0"
		},
		HandleTag: func(t imagemeta.TagInfo) error {
			v, err := strconv.Atoi(fmt.Sprint(t.Value)) // some writers use LONG for every number
			if err == nil && v >= 1 && v <= 8 {
				o = v
			}
			return imagemeta.ErrStopWalking
		},
	})
	return o
}

// turned turns the stored picture upright.
func turned(src *image.RGBA, orientation int) *image.RGBA {
	if orientation == 1 {
		return src
	}
	size := src.Rect.Size()
	w, h := float64(size.X), float64(size.Y)
	to := [...]f64.Aff3{
		2: {-1, 0, w, 0, 1, 0},
		3: {-1, 0, w, 0, -1, h},
		4: {1, 0, 0, 0, -1, h},
		5: {0, 1, 0, 1, 0, 0}, // from here on, rows become columns
		6: {0, -1, h, 1, 0, 0},
		7: {0, -1, h, -1, 0, w},
		8: {0, 1, 0, -1, 0, w},
	}[orientation]
	if orientation >= 5 {
		size.X, size.Y = size.Y, size.X
	}
	dst := image.NewRGBA(image.Rectangle{Max: size})
	draw.NearestNeighbor.Transform(dst, to, src, src.Rect, draw.Src, nil)
	return dst
}

// profile returns a function that converts pixels to sRGB. It knows the two profiles of cameras and telephones, in a
// JPEG: Display P3 and Adobe RGB. Pixels with any other profile stay as they are.
func (s *source) profile(format string) func(pix []uint8) {
	var toXYZ func(color.NRGBA) ciexyz.Color
	switch s.profileName(format) {
	case icc.DisplayP3Profile:
		toXYZ = func(c color.NRGBA) ciexyz.Color {
			p, _ := displayp3.ColorFromNRGBA(c)
			return p.ToXYZ()
		}
	case icc.AdobeRGBProfile:
		toXYZ = func(c color.NRGBA) ciexyz.Color {
			p, _ := adobergb.ColorFromNRGBA(c)
			return p.ToXYZ()
		}
	default:
		return func([]uint8) {}
	}
	return func(pix []uint8) {
		var parts sync.WaitGroup
		n := (len(pix)/4/runtime.GOMAXPROCS(0) + 1) * 4
		for ; len(pix) > 0; pix = pix[min(n, len(pix)):] {
			part := pix[:min(n, len(pix))]
			parts.Go(func() {
				for p := part; len(p) >= 4; p = p[4:] {
					c := srgb.ColorFromXYZ(toXYZ(color.NRGBA{p[0], p[1], p[2], 0xff})).ToNRGBA(1)
					p[0], p[1], p[2] = c.R, c.G, c.B
				}
			})
		}
		parts.Wait()
	}
}

func (s *source) profileName(format string) icc.WellKnownProfile {
	if format != "jpeg" || s.rewind() != nil {
		return icc.UnknownProfile
	}
	md, err := jpegmeta.ExtractMetadata(bufio.NewReader(s))
	if err != nil {
		return icc.UnknownProfile
	}
	data, err := md.ICCProfileData()
	if err != nil || !sound(data) {
		return icc.UnknownProfile
	}
	p, err := md.ICCProfile()
	if err != nil {
		return icc.UnknownProfile
	}
	return p.WellKnownProfile()
}

// sound checks the table of tags of a profile (ICC.1, section 7.3). Package icc allocates the sizes that the table declares.
func sound(profile []byte) bool {
	const header = 128
	if len(profile) < header+4 {
		return false
	}
	table := profile[header+4:]
	n := uint64(binary.BigEndian.Uint32(profile[header:]))
	if 12*n > uint64(len(table)) {
		return false
	}
	for ; n > 0; n-- {
		offset, size := binary.BigEndian.Uint32(table[4:]), binary.BigEndian.Uint32(table[8:])
		if uint64(offset)+uint64(size) > uint64(len(profile)) {
			return false
		}
		table = table[12:]
	}
	return true
}
