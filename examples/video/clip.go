package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/color/palette"
	stddraw "image/draw"
	"image/gif"
	"image/png"
	"iter"
	"math"
	"math/rand/v2"
	"slices"

	"golang.org/x/image/draw"
)

// A clip is an animated GIF, which every browser plays and the standard library reads. These are the bounds of an upload.
const (
	maxBytes  = 8 << 20
	maxSide   = 2000
	maxFrames = 500
	maxPixels = 60e6 // of all frames together; decoding takes a byte for each
)

// errClip means that an upload is not a clip that this site takes.
var errClip = errors.New("not a clip")

type size struct{ width, height, frames, pixels int }

// measure reads the size of a clip without decoding it: a few kilobytes can decode to gigabytes. The blocks of a GIF are in
// https://www.w3.org/Graphics/GIF/spec-gif89a.txt.
func measure(clip []byte) (size, error) {
	config, err := gif.DecodeConfig(bytes.NewReader(clip))
	if err != nil {
		return size{}, fmt.Errorf("%w: it must be an animated GIF: %w", errClip, err)
	}
	s := size{width: config.Width, height: config.Height}
	if min(s.width, s.height) < 1 || max(s.width, s.height) > maxSide {
		return s, fmt.Errorf("%w: it has %d×%d pixels, and may have 1×1 to %d×%d", errClip, s.width, s.height, maxSide, maxSide)
	}
	rest := clip[6:] // behind the signature
	take := func(n int) []byte {
		if n > len(rest) {
			rest = nil
			return make([]byte, n)
		}
		taken := rest[:n]
		rest = rest[n:]
		return taken
	}
	skipTable := func(flags byte) {
		if flags&0x80 != 0 {
			take(3 << (flags&7 + 1))
		}
	}
	skipTable(take(7)[4])
	for {
		switch take(1)[0] {
		case 0x21: // an extension
			take(1)
		case 0x2c: // a frame
			d := take(9)
			s.frames++
			s.pixels += (int(d[4]) | int(d[5])<<8) * (int(d[6]) | int(d[7])<<8)
			skipTable(d[8])
			take(1)
		default: // the end, or damage, which decoding finds
			switch {
			case s.frames == 0:
				return s, fmt.Errorf("%w: it has no frames", errClip)
			case s.frames > maxFrames || s.pixels > maxPixels || s.width*s.height*s.frames > maxPixels:
				return s, fmt.Errorf("%w: it has %d frames of %d×%d pixels; up to %d frames and %d million pixels in all are possible", errClip, s.frames, s.width, s.height, maxFrames, int(maxPixels/1e6))
			}
			return s, nil
		}
		for n := take(1)[0]; n != 0; n = take(1)[0] {
			take(int(n))
		}
	}
}

// format is a stored form of every clip.
type format struct {
	Name  string
	kind  string
	width int // at most
	make  func(context.Context, *gif.GIF, int) ([]byte, error)
}

// formats are made of every clip, in this order.
var formats = []format{
	{"still.png", "image/png", 640, still},
	{"small.gif", "image/gif", 320, shrink},
	{"large.gif", "image/gif", 640, shrink},
}

// frames yields the pictures that a viewer sees. Each is valid until the next.
func frames(g *gif.GIF) iter.Seq2[int, *image.RGBA] {
	return func(yield func(int, *image.RGBA) bool) {
		canvas := image.NewRGBA(image.Rect(0, 0, g.Config.Width, g.Config.Height))
		stddraw.Draw(canvas, canvas.Bounds(), image.Black, image.Point{}, stddraw.Src)
		for i, frame := range g.Image {
			var before []byte
			if g.Disposal[i] == gif.DisposalPrevious {
				before = slices.Clone(canvas.Pix)
			}
			stddraw.Draw(canvas, frame.Bounds(), frame, frame.Bounds().Min, stddraw.Over)
			if !yield(i, canvas) {
				return
			}
			switch g.Disposal[i] {
			case gif.DisposalPrevious:
				copy(canvas.Pix, before)
			case gif.DisposalBackground:
				stddraw.Draw(canvas, frame.Bounds(), image.Black, image.Point{}, stddraw.Src)
			}
		}
	}
}

// scaled returns a picture that is at most so wide, in the same proportions.
func scaled(picture image.Image, width int) *image.RGBA {
	b := picture.Bounds()
	width = min(width, b.Dx())
	small := image.NewRGBA(image.Rect(0, 0, width, max(1, b.Dy()*width/b.Dx())))
	draw.ApproxBiLinear.Scale(small, small.Bounds(), picture, b, draw.Src, nil)
	return small
}

// still returns the frame in the middle as a PNG.
func still(_ context.Context, g *gif.GIF, width int) ([]byte, error) {
	var b bytes.Buffer
	for i, frame := range frames(g) {
		if i == len(g.Image)/2 {
			err := png.Encode(&b, scaled(frame, width))
			return b.Bytes(), err
		}
	}
	return nil, fmt.Errorf("%w: it has no frames", errClip)
}

// shrink returns the clip at most so wide, in its 256 most frequent colours.
func shrink(ctx context.Context, g *gif.GIF, width int) ([]byte, error) {
	colours := popular(g, width)
	nearest := make([]int16, allColours) // 1 above the index of the palette; 0 until it is known
	out := &gif.GIF{LoopCount: g.LoopCount, Delay: g.Delay}
	for _, frame := range frames(g) {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		small := scaled(frame, width)
		flat := image.NewPaletted(small.Bounds(), colours)
		for i := range flat.Pix {
			c := coarse(small.Pix[4*i:])
			if nearest[c] == 0 {
				nearest[c] = int16(colours.Index(fine(c))) + 1
			}
			flat.Pix[i] = uint8(nearest[c] - 1)
		}
		out.Image = append(out.Image, flat)
	}
	var b bytes.Buffer
	err := gif.EncodeAll(&b, out)
	return b.Bytes(), err
}

// popular returns the most frequent colours of up to 16 frames.
func popular(g *gif.GIF, width int) (p color.Palette) {
	counts, used := make([]int, allColours), []int{}
	step := max(1, len(g.Image)/16)
	for i, frame := range frames(g) {
		if i%step != 0 {
			continue
		}
		small := scaled(frame, width)
		for n := range len(small.Pix) / 4 {
			c := coarse(small.Pix[4*n:])
			if counts[c]++; counts[c] == 1 {
				used = append(used, c)
			}
		}
	}
	slices.SortFunc(used, func(a, b int) int { return cmp.Or(counts[b]-counts[a], a-b) })
	for _, c := range used[:min(256, len(used))] {
		p = append(p, fine(c))
	}
	return p
}

// allColours is how many colours there are with six bits for each of red, green and blue.
const allColours = 1 << 18

// coarse returns the number of a pixel's colour, which the eye hardly distinguishes from its neighbours.
func coarse(pixel []uint8) int {
	return int(pixel[0]>>2)<<12 | int(pixel[1]>>2)<<6 | int(pixel[2]>>2)
}

// fine returns the colour of a number.
func fine(c int) color.RGBA {
	channel := func(bits int) uint8 { return uint8(bits&63<<2 | bits&63>>4) }
	return color.RGBA{channel(c >> 12), channel(c >> 6), channel(c), 255}
}

// film returns a clip of hills that pass under a sky with a sun. It depends on the seed alone.
func film(width, height, frames int, seed uint64) ([]byte, error) {
	random := rand.New(rand.NewPCG(seed, 0))
	hue := palette.WebSafe[random.IntN(len(palette.WebSafe))].(color.RGBA)
	mix := func(a, b uint8, part float64) uint8 { return uint8(float64(a)*(1-part) + float64(b)*part) }
	const shades = 24
	var colours color.Palette
	for i := range shades { // of the sky, from above to the horizon
		part := float64(i) / shades
		colours = append(colours, color.RGBA{mix(30+hue.R/3, 250, part), mix(40+hue.G/3, 225, part), mix(90+hue.B/3, 190, part), 255})
	}
	colours = append(colours, color.RGBA{255, 244, 214, 255}) // the sun
	for i := range 3 {                                        // hills, the nearest last
		part := 0.5 - float64(i)*0.2
		colours = append(colours, color.RGBA{mix(12, hue.R, part), mix(34, hue.G, part), mix(44, hue.B, part), 255})
	}
	start, out := random.Float64()*6, &gif.GIF{}
	for n := range frames {
		turn := start + 2*math.Pi*float64(n)/float64(frames) // the last frame leads to the first
		frame := image.NewPaletted(image.Rect(0, 0, width, height), colours)
		sunX, sunY := float64(width)*(0.5-0.3*math.Cos(turn)), float64(height)*(0.42-0.14*math.Sin(turn))
		for x := range width {
			var ridges [3]float64
			for i := range ridges {
				at := 2*math.Pi*float64((2+i)*x)/float64(width) + float64(i+1)*turn
				ridges[i] = float64(height) * (0.62 + 0.13*float64(i) + 0.05*math.Sin(at) + 0.03*math.Sin(2*at+1))
			}
			for y := range height {
				shade := uint8(shades * y / height)
				if math.Hypot(float64(x)-sunX, float64(y)-sunY) < float64(height)/9 {
					shade = shades
				}
				for i, ridge := range ridges {
					if float64(y) > ridge {
						shade = uint8(shades + 1 + i)
					}
				}
				frame.Pix[y*frame.Stride+x] = shade
			}
		}
		out.Image, out.Delay = append(out.Image, frame), append(out.Delay, 6)
	}
	var b bytes.Buffer
	err := gif.EncodeAll(&b, out)
	return b.Bytes(), err
}
