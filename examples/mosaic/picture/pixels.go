package picture

import (
	"image"
	"image/color"
)

// rgb8 and rgb16 are opaque sRGB pixels. Their methods have pointer receivers
// so that a pixel of a buffer can serve as a color.Color without being copied
// to the heap, once for each of 50 million pixels.
type (
	rgb8  [3]uint8
	rgb16 [3]uint16
)

func (p *rgb8) RGBA() (r, g, b, a uint32) {
	return uint32(p[0]) * 0x101, uint32(p[1]) * 0x101, uint32(p[2]) * 0x101, 0xffff
}

func (p *rgb16) RGBA() (r, g, b, a uint32) {
	return uint32(p[0]), uint32(p[1]), uint32(p[2]), 0xffff
}

// pixel is either depth.
type pixel interface{ rgb8 | rgb16 }

// deep reports whether an image has more than 8 bits a channel.
func deep(img image.Image) bool {
	switch img := img.(type) {
	case *turned:
		return deep(img.src)
	case *profiled:
		return deep(img.src)
	case *image.Paletted:
		return false
	}
	switch img.ColorModel() {
	case color.RGBAModel, color.NRGBAModel, color.GrayModel, color.AlphaModel,
		color.YCbCrModel, color.NYCbCrAModel, color.CMYKModel:
		return false
	}
	return true
}

// row8 fills dst with the pixels from (x, y) to the right, over white.
func row8(img image.Image, x, y int, dst []rgb8) {
	switch img := img.(type) {
	case *profiled:
		row8(img.src, x, y, dst)
		for i := range dst {
			img.t.apply8(&dst[i])
		}
	case *image.YCbCr:
		rowYCbCr(img, x, y, dst)
	case *image.NYCbCrA:
		rowYCbCr(&img.YCbCr, x, y, dst)
		for i, a := range img.A[img.AOffset(x, y):][:len(dst)] {
			if a != 0xff {
				p := &dst[i]
				*p = overWhite8(p[0], p[1], p[2], a)
			}
		}
	case *image.RGBA:
		s := img.Pix[img.PixOffset(x, y):]
		s = s[:4*len(dst)]
		for i := range dst {
			p := (*[4]uint8)(s[4*i:])
			w := 0xff - p[3]
			dst[i] = rgb8{p[0] + w, p[1] + w, p[2] + w}
		}
	case *image.NRGBA:
		s := img.Pix[img.PixOffset(x, y):]
		s = s[:4*len(dst)]
		for i := range dst {
			p := (*[4]uint8)(s[4*i:])
			if p[3] == 0xff {
				dst[i] = rgb8{p[0], p[1], p[2]}
			} else {
				dst[i] = overWhite8(p[0], p[1], p[2], p[3])
			}
		}
	case *image.Gray:
		s := img.Pix[img.PixOffset(x, y):]
		for i, v := range s[:len(dst)] {
			dst[i] = rgb8{v, v, v}
		}
	case *image.CMYK:
		s := img.Pix[img.PixOffset(x, y):]
		s = s[:4*len(dst)]
		for i := range dst {
			p := (*[4]uint8)(s[4*i:])
			r, g, b := color.CMYKToRGB(p[0], p[1], p[2], p[3])
			dst[i] = rgb8{r, g, b}
		}
	case *image.Paletted:
		var table [256]rgb8
		for i, c := range img.Palette[:min(len(img.Palette), 256)] {
			n := color.NRGBAModel.Convert(c).(color.NRGBA)
			table[i] = overWhite8(n.R, n.G, n.B, n.A)
		}
		s := img.Pix[img.PixOffset(x, y):]
		for i, v := range s[:len(dst)] {
			dst[i] = table[v]
		}
	default:
		for i := range dst {
			p := at16(img, x+i, y)
			dst[i] = rgb8{to8(p[0]), to8(p[1]), to8(p[2])}
		}
	}
}

// rowYCbCr converts with color.YCbCrToRGB, not more precisely, so that the pixels are those that other
// programs get from this image.
func rowYCbCr(img *image.YCbCr, x, y int, dst []rgb8) {
	luma := img.Y[img.YOffset(x, y):]
	luma = luma[:len(dst)]
	shift := 0 // of x, to find its chroma sample
	switch img.SubsampleRatio {
	case image.YCbCrSubsampleRatio422, image.YCbCrSubsampleRatio420:
		shift = 1
	case image.YCbCrSubsampleRatio411, image.YCbCrSubsampleRatio410:
		shift = 2
	}
	first := img.COffset(x, y)
	cb, cr := img.Cb[first:], img.Cr[first:]
	phase := x & (1<<shift - 1) // no decoder makes an image with negative x
	for i, yy := range luma {
		j := (phase + i) >> shift
		r, g, b := color.YCbCrToRGB(yy, cb[j], cr[j])
		dst[i] = rgb8{r, g, b}
	}
}

// row16 is row8 at full precision.
func row16(img image.Image, x, y int, dst []rgb16) {
	switch img := img.(type) {
	case *profiled:
		row16(img.src, x, y, dst)
		for i := range dst {
			img.t.apply16(&dst[i])
		}
	case *image.Gray16:
		s := img.Pix[img.PixOffset(x, y):]
		for i := range dst {
			v := be16(s[2*i:])
			dst[i] = rgb16{v, v, v}
		}
	case *image.RGBA64:
		s := img.Pix[img.PixOffset(x, y):]
		for i := range dst {
			p := s[8*i : 8*i+8]
			w := 0xffff - be16(p[6:])
			dst[i] = rgb16{be16(p) + w, be16(p[2:]) + w, be16(p[4:]) + w}
		}
	case *image.NRGBA64:
		s := img.Pix[img.PixOffset(x, y):]
		for i := range dst {
			p := s[8*i : 8*i+8]
			a := be16(p[6:])
			dst[i] = rgb16{over16(be16(p), a), over16(be16(p[2:]), a), over16(be16(p[4:]), a)}
		}
	default:
		for i := range dst {
			dst[i] = at16(img, x+i, y)
		}
	}
}

// at16 reads a pixel of any image, slowly.
func at16(img image.Image, x, y int) rgb16 {
	var c color.RGBA64
	switch img := img.(type) {
	case *image.NRGBA64:
		// Its own RGBA64At would round the colour to the alpha first.
		n := img.NRGBA64At(x, y)
		return rgb16{over16(n.R, n.A), over16(n.G, n.A), over16(n.B, n.A)}
	case image.RGBA64Image:
		c = img.RGBA64At(x, y)
	default:
		r, g, b, a := img.At(x, y).RGBA()
		c = color.RGBA64{R: uint16(r), G: uint16(g), B: uint16(b), A: uint16(a)}
	}
	w := 0xffff - c.A
	return rgb16{c.R + w, c.G + w, c.B + w}
}

func be16(p []byte) uint16 { return uint16(p[0])<<8 | uint16(p[1]) }

// to8 rounds a 16-bit value to the nearest of 8 bits.
func to8(v uint16) uint8 { return uint8((uint32(v)*0xff + 0x7fff) / 0xffff) }

// overWhite8 composites a pixel that is not premultiplied with its alpha.
func overWhite8(r, g, b, a uint8) rgb8 {
	over := func(v uint8) uint8 {
		return uint8((uint32(v)*uint32(a) + 0xff*(0xff-uint32(a)) + 0x7f) / 0xff)
	}
	return rgb8{over(r), over(g), over(b)}
}

func over16(v, a uint16) uint16 {
	if a == 0xffff {
		return v
	}
	return uint16((uint32(v)*uint32(a) + 0xffff*(0xffff-uint32(a)) + 0x7fff) / 0xffff)
}
