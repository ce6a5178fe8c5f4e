package picture

import (
	"image"
	"math"
	"slices"
	"sync"
)

// Size of the sample picture.
const (
	sampleWidth  = 960
	sampleHeight = 640
)

// Sample paints a picture to try the program with, 960×640 pixels: the sun going
// down behind mountains, and a lake. It is the same picture every time. It was
// designed to survive being seen in 60×40 tiles: large shapes, strong light,
// and colours from all over the library.
func Sample() *image.RGBA {
	img := *painted()
	img.Pix = slices.Clone(img.Pix) // the caller may draw on it
	return &img
}

// painted is kept, because painting takes half a second.
var painted = sync.OnceValue(func() *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, sampleWidth, sampleHeight))
	s := newScene()
	for y := range sampleHeight {
		for x := range sampleWidth {
			// Two samples a pixel, on its diagonal, smooth the outlines.
			var c vec
			for _, d := range [2]float64{0.25, 0.75} {
				u, v := (float64(x)+d)/sampleHeight, (float64(y)+d)/sampleHeight
				c = c.plus(s.at(u, v), 0.5)
			}
			p := img.Pix[img.PixOffset(x, y):]
			p[0], p[1], p[2], p[3] = Encode8(c[0]), Encode8(c[1]), Encode8(c[2]), 0xff
		}
	}
	return img
})

// vec is a colour in linear light.
type vec [3]float64

func (a vec) plus(b vec, t float64) vec {
	for i := range a {
		a[i] += b[i] * t
	}
	return a
}

// mix blends from a (t=0) to b (t=1).
func mix(a, b vec, t float64) vec {
	t = min(max(t, 0), 1)
	for i := range a {
		a[i] += (b[i] - a[i]) * t
	}
	return a
}

// hex is a colour written as 0xRRGGBB in sRGB.
func hex(c uint32) vec {
	return vec{Decode8(uint8(c >> 16)), Decode8(uint8(c >> 8)), Decode8(uint8(c))}
}

// step rises smoothly from 0 at a to 1 at b.
func step(a, b, x float64) float64 {
	t := min(max((x-a)/(b-a), 0), 1)
	return t * t * (3 - 2*t)
}

// scene is measured in heights of the picture: u runs from 0 to 1.5, v from 0
// at the top to 1.
type scene struct {
	sky     []stop
	layers  []ridge
	horizon float64
	sunU    float64
	sunV    float64
}

type stop struct {
	at float64
	c  vec
}

// ridge is a chain of mountains.
type ridge struct {
	base, height float64 // of the skyline, in v
	scale        float64 // mountains per height of the picture
	seed         uint32
	near, far    vec // at the foot, at the top
	lit          vec // where the sun touches
	outline      []float64
}

func newScene() *scene {
	s := &scene{
		horizon: 0.66,
		sunU:    0.93,
		sunV:    0.40,
		sky: []stop{
			{0.00, hex(0x1d2a6b)}, {0.14, hex(0x3f3f9c)}, {0.27, hex(0x8a4fa8)},
			{0.38, hex(0xe0637f)}, {0.47, hex(0xff8a4c)}, {0.56, hex(0xffc25a)},
			{0.66, hex(0xffe79a)},
		},
		layers: []ridge{
			{base: 0.55, height: 0.19, scale: 2.3, seed: 11, near: hex(0xc98a9a), far: hex(0x9a6fb0), lit: hex(0xffb27a)},
			{base: 0.61, height: 0.17, scale: 3.1, seed: 47, near: hex(0x7a5a9c), far: hex(0x4f4590), lit: hex(0xf07a6a)},
			{base: 0.66, height: 0.10, scale: 4.6, seed: 83, near: hex(0x2f6a72), far: hex(0x214a66), lit: hex(0x6f9a62)},
		},
	}
	for i := range s.layers {
		s.layers[i].trace()
	}
	return s
}

// at is the colour of the scene at (u, v).
func (s *scene) at(u, v float64) vec {
	if c, ok := s.foreground(u, v); ok {
		return c
	}
	if v < s.horizon {
		return s.land(u, v)
	}
	return s.water(u, v)
}

// land is the sky with everything before it, down to the horizon.
func (s *scene) land(u, v float64) vec {
	c := s.heaven(u, v)
	for i := range s.layers {
		r := &s.layers[i]
		top := r.skyline(u)
		if v < top {
			continue
		}
		depth := (v - top) / (s.horizon - top + 1e-9)
		body := mix(r.far, r.near, depth)
		// Faces turned to the sun catch its light.
		slope := (r.skyline(u+0.004) - r.skyline(u-0.004)) / 0.008
		facing := slope
		if u > s.sunU {
			facing = -slope
		}
		crag := noise(u*42+v*30, v*38-u*12, r.seed+5)
		light := step(-0.1, 0.9, -facing+crag*0.8-depth*0.55) * math.Exp(-math.Abs(u-s.sunU)*1.1)
		c = mix(body, r.lit, light*0.7)
		// Snow near the tops of the far mountains.
		if r.height > 0.16 {
			c = mix(c, hex(0xffe3d8), step(0.02, 0.10, r.base-r.height*0.40-v+crag*0.03)*0.75)
		}
		c = c.plus(vec{1, 0.8, 0.5}, 0.03*depth) // haze over the water
	}
	return c
}

func (s *scene) heaven(u, v float64) vec {
	c := s.sky[0].c
	for i := 1; i < len(s.sky); i++ {
		a, b := s.sky[i-1], s.sky[i]
		if v >= a.at {
			c = mix(a.c, b.c, (v-a.at)/(b.at-a.at))
		}
	}
	// Away from the sun the sky is cooler.
	c = mix(c, hex(0x6a5bb0), 0.30*step(0.35, 1.1, math.Abs(u-s.sunU)))

	d := math.Hypot(u-s.sunU, v-s.sunV)
	c = c.plus(hex(0xff9a3c), 0.55*math.Exp(-d*d*38))
	c = c.plus(hex(0xffd070), 0.9*math.Exp(-d*d*260))
	sun := step(0.082, 0.076, d)

	disc := mix(c, hex(0xfff4cf), sun)
	if v > 0.5 {
		return disc // no clouds this low
	}

	// Long clouds, lit from below.
	n := fractal(u*2.2+3, v*11, 7)
	cloud := step(0.60, 0.86, n+0.25*fractal(u*5, v*24, 19)) * step(0.50, 0.38, v)
	if cloud > 0 {
		under := fractal(u*2.2+3, (v+0.018)*11, 7)
		lit := step(-0.10, 0.12, n-under) // thinner below: the light comes through
		near := math.Exp(-d * 1.9)
		shade := mix(hex(0x4a3f86), hex(0xd06a86), step(0.02, 0.38, v))
		glow := mix(hex(0xf29aa6), hex(0xffe2a0), near)
		c = mix(c, mix(shade, glow, lit*0.6+near*0.5), cloud*0.85)
		disc = mix(c, hex(0xfff4cf), sun*(1-cloud*0.55))
	}
	c = disc
	if v > 0.22 {
		return c
	}

	// The first stars.
	gx, gy := math.Floor(u*46), math.Floor(v*46)
	h := hash(int(gx), int(gy), 99)
	if h > 0.86 {
		px, py := (gx+0.3+0.4*hash(int(gx), int(gy), 3))/46, (gy+0.3+0.4*hash(int(gx), int(gy), 4))/46
		r := math.Hypot(u-px, v-py)
		c = c.plus(vec{1, 0.95, 0.9}, step(0.0032, 0.0008, r)*step(0.22, 0.05, v)*(1-cloud))
	}
	return c
}

// water mirrors the land, broken by ripples that widen towards the viewer.
func (s *scene) water(u, v float64) vec {
	depth := (v - s.horizon) / (1 - s.horizon)
	wave := 90 / (0.25 + depth*1.6)
	ripple := noise(u*9, v*wave, 31) - 0.5 + 0.6*(noise(u*23, v*wave*1.9, 57)-0.5)
	mirrored := s.horizon - (v-s.horizon)*1.12 + ripple*0.035*(0.3+depth)
	c := s.land(u+ripple*0.028*(0.3+depth), min(max(mirrored, 0), s.horizon-1e-6))

	deep := mix(hex(0x2c7a8c), hex(0x0f2f5c), depth)
	c = mix(c, deep, 0.22+0.38*depth)

	// The path of the sun.
	width := 0.03 + 0.10*depth
	aside := (u - s.sunU + ripple*0.05) / width
	path := math.Exp(-aside * aside)
	sparkle := step(0.05, 0.30, ripple+0.10-0.06*depth)
	return c.plus(hex(0xffb050), path*(0.20+0.95*sparkle)*(1-0.45*depth))
}

// foreground is the near shore: a meadow with flowers on the left, and firs.
func (s *scene) foreground(u, v float64) (vec, bool) {
	bank := 0.90 + 0.13*step(0.05, 0.85, u) + 0.012*math.Sin(u*19) + 0.014*noise(u*30, 1, 71)
	if v > bank {
		d := (v - bank) / 0.14
		c := mix(hex(0x7d9a2f), hex(0x1d4a2a), d)
		c = mix(c, hex(0xd8c840), step(0.6, 0.9, noise(u*160, v*40, 13))*0.5*(1-d))
		gx, gy := math.Floor(u*34), math.Floor(v*34)
		px, py := (gx+0.25+0.5*hash(int(gx), int(gy), 21))/34, (gy+0.25+0.5*hash(int(gx), int(gy), 22))/34
		if k := hash(int(gx), int(gy), 23); k > 0.35 {
			petals := []vec{hex(0xe8332e), hex(0xff5fa2), hex(0xffffff), hex(0xffcf2a), hex(0x9a4fe0)}
			r := math.Hypot(u-px, v-py)
			c = mix(c, petals[int(k*997)%len(petals)], step(0.0095, 0.006, r))
		}
		return c, true
	}
	for _, f := range []struct{ u, foot, h float64 }{
		{0.07, 0.93, 0.52}, {0.20, 0.95, 0.40}, {0.31, 0.97, 0.27}, {-0.02, 0.95, 0.36},
		{1.45, 1.03, 0.55}, {1.36, 1.04, 0.38},
	} {
		if c, ok := fir(u, v, f.u, f.foot, f.h); ok {
			return c, true
		}
	}
	return vec{}, false
}

// fir is a tree of the given height, its foot at (fu, fv).
func fir(u, v, fu, fv, height float64) (vec, bool) {
	t := (fv - v) / height // 0 at the foot, 1 at the tip
	if t < 0 || t > 1 {
		return vec{}, false
	}
	du := (u - fu) / height
	if t < 0.08 {
		return hex(0x3a2418), math.Abs(du) < 0.022
	}
	tier := math.Mod(t*9, 1)
	half := 0.235 * (1.04 - t) * (1.02 - 0.42*tier)
	half *= 0.86 + 0.28*noise(u*90, v*90, 5)
	if math.Abs(du) > half {
		return vec{}, false
	}
	c := mix(hex(0x123a33), hex(0x0c2024), tier)
	sunSide := du
	if fu > 0.93 {
		sunSide = -du
	}
	return mix(c, hex(0x5a7a35), step(0.1, 1, sunSide/half)*0.8), true
}

// outlineSteps is how finely an outline is traced, per height of the picture:
// twice as fine as the samples, and far cheaper than asking the noise each time.
const outlineSteps = 4 * sampleHeight

// outlineMargin is how far the outline is traced beyond both edges.
const outlineMargin = 0.25

func (r *ridge) trace() {
	width := float64(sampleWidth) / sampleHeight
	r.outline = make([]float64, int((width+2*outlineMargin)*outlineSteps)+2)
	for i := range r.outline {
		r.outline[i] = r.rise(float64(i)/outlineSteps - outlineMargin)
	}
}

// skyline is the ridge's outline at u, in v.
func (r *ridge) skyline(u float64) float64 {
	at := (u + outlineMargin) * outlineSteps
	i := min(max(int(at), 0), len(r.outline)-2)
	return r.outline[i] + (r.outline[i+1]-r.outline[i])*(at-float64(i))
}

// rise computes one point of the outline.
func (r *ridge) rise(u float64) float64 {
	n, amp, f := 0.0, 0.5, r.scale
	for i := range uint32(6) {
		k := noise(u*f, 0, r.seed+i)
		if i < 3 {
			k = 1 - math.Abs(2*k-1) // sharp tops
		}
		n += amp * k
		amp *= 0.46
		f *= 2.1
	}
	return r.base - r.height*(n*1.5-0.55)
}

// fractal adds five octaves of noise, around 0.5.
func fractal(x, y float64, seed uint32) float64 {
	n, amp := 0.0, 0.5
	for i := range uint32(5) {
		n += amp * noise(x, y, seed+i)
		x, y, amp = x*2.03, y*2.03, amp*0.5
	}
	return n
}

// noise is smooth value noise, 0 to 1, with a lattice of 1.
func noise(x, y float64, seed uint32) float64 {
	fx, fy := math.Floor(x), math.Floor(y)
	ix, iy := int(fx), int(fy)
	tx, ty := step(0, 1, x-fx), step(0, 1, y-fy)
	a := hash(ix, iy, seed) + (hash(ix+1, iy, seed)-hash(ix, iy, seed))*tx
	b := hash(ix, iy+1, seed) + (hash(ix+1, iy+1, seed)-hash(ix, iy+1, seed))*tx
	return a + (b-a)*ty
}

// hash scrambles a lattice point into 0 to 1 (the finisher of MurmurHash3).
func hash(x, y int, seed uint32) float64 {
	h := uint32(x)*0x9e3779b1 ^ uint32(y)*0x85ebca77 ^ seed*0xc2b2ae3d
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	h ^= h >> 16
	return float64(h) / (1 << 32)
}
