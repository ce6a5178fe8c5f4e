package tiles

import "math"

// levels is how finely an ornament is shaded. The steps are a third of a unit of
// lightness, which nobody sees.
const levels = 64

// ornament is a square drawing with values from 0, the deepest shade, to
// levels-1, the lightest tint.
type ornament struct {
	name string
	mask []uint8
}

// drawing gives the value, about -1 to 1, at (x, y), which run from -1 to 1.
type drawing func(x, y float64) float64

// ornaments draws every motif side×side pixels large, some of them in several
// positions.
func ornaments(side int) []ornament {
	var list []ornament
	for _, m := range []struct {
		name   string
		turns  []float64 // in radians
		motive drawing
	}{
		{"petals", []float64{0, math.Pi / 6}, petals(6)},
		{"blossom", []float64{0, math.Pi / 5}, petals(5)},
		{"daisy", []float64{0}, daisy},
		{"waves", []float64{0, math.Pi / 2}, waves},
		{"dunes", []float64{0.5, -0.7}, waves},
		{"stripes", []float64{math.Pi / 4, -math.Pi / 4, 0}, stripes},
		{"dots", []float64{0, math.Pi / 4}, dots},
		{"rings", []float64{0}, rings},
		{"pearl", []float64{0}, pearl},
		{"dawn", []float64{math.Pi / 2, 0.8, 2.3}, gradient},
		{"fan", []float64{0, math.Pi / 2, math.Pi, -math.Pi / 2}, fan},
		{"star", []float64{0, math.Pi / 8}, star},
		{"lattice", []float64{math.Pi / 4, 0}, lattice},
		{"scales", []float64{0, math.Pi}, scales},
		{"leaf", []float64{math.Pi / 4, -math.Pi / 4}, leaf},
		{"swirl", []float64{0, math.Pi}, swirl},
		{"diamond", []float64{0}, diamond},
	} {
		for _, angle := range m.turns {
			list = append(list, ornament{m.name, rasterise(m.motive, angle, side)})
		}
	}
	return list
}

// rasterise rasterises a motif turned by an angle, and adds the light that falls on
// the bevelled rim of a real tile from the top left.
func rasterise(motive drawing, angle float64, side int) []uint8 {
	values := make([]float64, side*side)
	sin, cos := math.Sincos(angle)
	mean := 0.0
	for i := range values {
		x := (float64(i%side)+0.5)*2/float64(side) - 1
		y := (float64(i/side)+0.5)*2/float64(side) - 1
		v := motive(x*cos+y*sin, y*cos-x*sin)
		rim := edge(0.90, 0.96, max(math.Abs(x), math.Abs(y)))
		light := -1.0 // right and bottom lie in the shade
		if x+y < 0 {
			light = 1
		}
		values[i] = min(max(v*(1-rim)+light*rim*0.9, -1), 1)
		mean += values[i] / float64(len(values))
	}
	mask := make([]uint8, len(values))
	for i, v := range values {
		// Centred, so that an ornament does not shift the colour it is painted in.
		mask[i] = uint8(math.Round(min(max((v-mean)*0.5+0.5, 0), 1) * (levels - 1)))
	}
	return mask
}

// edge rises smoothly from 0 at a to 1 at b.
func edge(a, b, x float64) float64 {
	t := min(max((x-a)/(b-a), 0), 1)
	return t * t * (3 - 2*t)
}

func petals(n float64) drawing {
	return func(x, y float64) float64 {
		r, phi := math.Hypot(x, y), math.Atan2(y, x)
		lobe := math.Abs(math.Cos(phi * n / 2))
		outline := 0.38 + 0.47*lobe
		inside := edge(outline+0.05, outline-0.05, r)
		v := -0.8 + inside*(0.75+0.85*r*lobe)
		return v + edge(0.24, 0.18, r)*(1.0-v)*0.9
	}
}

func daisy(x, y float64) float64 {
	r, phi := math.Hypot(x, y), math.Atan2(y, x)
	ray := math.Cos(phi * 12)
	v := -0.7 + edge(0.88, 0.80, r)*(1.1+0.45*ray)
	return v - edge(0.34, 0.28, r)*(v+0.55)
}

func waves(x, y float64) float64 {
	s := y*2.6 + 0.32*math.Sin(x*math.Pi*1.5)
	t := s - math.Floor(s)
	return -0.9 + 1.8*edge(0, 0.75, t)*edge(1, 0.86, t)
}

func stripes(x, _ float64) float64 {
	return 0.95 * math.Tanh(2.2*math.Sin(x*math.Pi*2.5))
}

func dots(x, y float64) float64 {
	u, v := x*1.75, y*1.75
	du, dv := u-math.Round(u), v-math.Round(v)
	r := math.Hypot(du, dv)
	ball := edge(0.40, 0.34, r)
	return -0.65 + ball*(1.5-1.6*math.Hypot(du+0.12, dv+0.12))
}

func rings(x, y float64) float64 {
	r := math.Hypot(x, y)
	return 0.9 * math.Cos(r*math.Pi*4.2) * (1 - 0.35*r)
}

// pearl is a ball lit from the top left.
func pearl(x, y float64) float64 {
	r := math.Hypot(x, y)
	ball := edge(0.84, 0.78, r)
	shine := 1.0 - 1.25*math.Hypot(x+0.28, y+0.28)
	glint := edge(0.24, 0.08, math.Hypot(x+0.32, y+0.32))
	return -0.75 + ball*(0.75+shine+0.5*glint)
}

func gradient(x, y float64) float64 { return 0.95*y + 0.18*math.Sin(x*5+y*3) }

// fan has its handle in a corner.
func fan(x, y float64) float64 {
	r := math.Hypot(x+1, y+1)
	phi := math.Atan2(y+1, x+1)
	v := 0.55*math.Cos(r*math.Pi*2.6) + 0.35*math.Cos(phi*16)
	return v*edge(2.3, 2.1, r) - 0.2
}

func star(x, y float64) float64 {
	r, phi := math.Hypot(x, y), math.Atan2(y, x)
	sector := math.Abs(math.Mod(phi+2*math.Pi, math.Pi/4) - math.Pi/8)
	outline := 0.40 + 0.46*math.Pow(sector/(math.Pi/8), 1.6)
	inside := edge(outline+0.04, outline-0.04, r)
	// Each point is a ridge, light on one side.
	side := 0.35
	if math.Mod(phi+2*math.Pi, math.Pi/4) < math.Pi/8 {
		side = -0.15
	}
	return -0.75 + inside*(1.2+side-0.45*r)
}

func lattice(x, y float64) float64 {
	bar := func(t float64) float64 { return edge(0.62, 0.95, math.Abs(math.Cos(t*math.Pi*1.5))) }
	a, b := bar(x), bar(y)
	over := math.Cos(x*math.Pi*1.5)*math.Cos(y*math.Pi*1.5) > 0
	v := -0.7
	if over {
		a, b = b, a
	}
	v += (0.25 - v) * a
	return v + (0.9-v)*b
}

// scales are those of a fish, or the tiles of a roof.
func scales(x, y float64) float64 {
	const size = 0.62
	for row := -3.0; row <= 3; row++ {
		shift := 0.0
		if math.Mod(row+4, 2) == 1 {
			shift = size / 2
		}
		cy := row * size * 0.5
		cx := math.Round((x-shift)/size)*size + shift
		if r := math.Hypot(x-cx, y-cy) / (size * 0.56); r < 1 {
			return 0.85 - 1.6*r*r + 0.25*edge(0.80, 0.92, r)
		}
	}
	return -0.8
}

func leaf(x, y float64) float64 {
	half := 0.50 * (1 - y*y*1.25)
	if half <= 0 {
		return -0.65 + 0.1*y
	}
	inside := edge(half+0.05, half-0.03, math.Abs(x))
	vein := edge(0.07, 0.02, math.Abs(x))
	rib := 0.22 * math.Cos((y-math.Abs(x)*0.9)*math.Pi*5)
	lamina := 0.55 + rib
	if x > 0 {
		lamina -= 0.3
	}
	lamina += (0.98 - lamina) * vein
	return -0.65 + inside*(0.65+lamina)
}

func swirl(x, y float64) float64 {
	r, phi := math.Hypot(x, y), math.Atan2(y, x)
	return 0.85 * math.Sin(2*phi+r*6.5) * edge(0, 0.25, r) * (1.05 - 0.35*r)
}

func diamond(x, y float64) float64 {
	d := math.Abs(x) + math.Abs(y)
	v := 0.8 - 1.3*math.Abs(d-0.45)
	// Facets.
	if x*y < 0 {
		v -= 0.35
	}
	return v - edge(0.92, 1.0, d)*0.6
}
