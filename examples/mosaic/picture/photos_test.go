package picture

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"testing"
)

// noisy fills an image of any kind with noise.
func noisy(seed uint64, pix ...[]byte) {
	rng := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	for _, p := range pix {
		rng.Read(p)
	}
}

// photos makes an image of every kind that a decoder returns, w×h.
func photos(w, h int) map[string]image.Image {
	r := image.Rect(0, 0, w, h)
	list := map[string]image.Image{}
	for name, ratio := range map[string]image.YCbCrSubsampleRatio{
		"444": image.YCbCrSubsampleRatio444, "422": image.YCbCrSubsampleRatio422, "420": image.YCbCrSubsampleRatio420,
		"440": image.YCbCrSubsampleRatio440, "411": image.YCbCrSubsampleRatio411, "410": image.YCbCrSubsampleRatio410,
	} {
		m := image.NewYCbCr(r, ratio)
		noisy(1, m.Y, m.Cb, m.Cr)
		list["YCbCr"+name] = m
	}
	rgba := image.NewRGBA(r)
	noisy(2, rgba.Pix)
	for i := 0; i < len(rgba.Pix); i += 4 { // premultiplied: no channel above alpha
		for c := range 3 {
			rgba.Pix[i+c] = min(rgba.Pix[i+c], rgba.Pix[i+3])
		}
	}
	list["RGBA"] = rgba
	nrgba := image.NewNRGBA(r)
	noisy(3, nrgba.Pix)
	list["NRGBA"] = nrgba
	gray := image.NewGray(r)
	noisy(4, gray.Pix)
	list["Gray"] = gray
	cmyk := image.NewCMYK(r)
	noisy(5, cmyk.Pix)
	list["CMYK"] = cmyk
	var pal color.Palette
	for i := range 256 {
		pal = append(pal, color.NRGBA{uint8(i * 7), uint8(i * 13), uint8(i), uint8(255 - i%5*20)})
	}
	paletted := image.NewPaletted(r, pal)
	noisy(6, paletted.Pix)
	list["Paletted"] = paletted
	gray16 := image.NewGray16(r)
	noisy(7, gray16.Pix)
	list["Gray16"] = gray16
	nrgba64 := image.NewNRGBA64(r)
	noisy(8, nrgba64.Pix)
	list["NRGBA64"] = nrgba64
	rgba64 := image.NewRGBA64(r)
	noisy(9, rgba64.Pix)
	for i := 6; i < len(rgba64.Pix); i += 8 {
		rgba64.Pix[i], rgba64.Pix[i+1] = 0xff, 0xff
	}
	list["RGBA64"] = rgba64
	list["custom"] = custom{nrgba64}
	return list
}

const pngSignature = "\x89PNG\r\n\x1a\n"

// rgb8 is an opaque pixel.
type rgb8 [3]uint8

func at8(img *image.RGBA, x, y int) rgb8 { return rgb8(img.Pix[img.PixOffset(x, y):]) }

func alike(a, b rgb8, most int) bool {
	for c := range a {
		if d := int(a[c]) - int(b[c]); d > most || d < -most {
			return false
		}
	}
	return true
}

// custom hides the type of an image.
type custom struct{ image.Image }

// asPNG and asJPEG encode with the standard library.
func asPNG(t testing.TB, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func asJPEG(t testing.TB, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, &jpeg.Options{Quality: 95}); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// tiff is an EXIF block with nothing but an orientation.
func tiff(o uint16) []byte {
	b := []byte("MM\x00\x2a\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01")
	b = binary.BigEndian.AppendUint16(b, o)
	return append(b, 0, 0, 0, 0, 0, 0)
}

// jpegWithEXIF puts a block behind the first marker.
func jpegWithEXIF(file, exif []byte) []byte {
	seg := append([]byte("Exif\x00\x00"), exif...)
	b := append([]byte{}, file[:2]...)
	b = append(b, 0xff, 0xe1)
	b = binary.BigEndian.AppendUint16(b, uint16(len(seg)+2))
	b = append(b, seg...)
	return append(b, file[2:]...)
}

func pngChunk(name string, data []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(data)))
	b = append(b, name...)
	b = append(b, data...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[4:]))
}

// pngWithEXIF puts a block before or behind the pixels.
func pngWithEXIF(file, exif []byte, before bool) []byte {
	at := len(file) - 12 // IEND
	if before {
		at = len(pngSignature) + 25
	}
	b := append([]byte{}, file[:at]...)
	b = append(b, pngChunk("eXIf", exif)...)
	return append(b, file[at:]...)
}
