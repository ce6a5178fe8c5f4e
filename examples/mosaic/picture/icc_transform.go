package picture

import (
	"errors"
	"image"
	"image/color"
	"math"
	"sync"
)

// transform brings the values of a colour space to sRGB: a curve for each channel to light, then a matrix from
// its primaries to those of sRGB.
type transform struct {
	curves [3]curve
	same   bool          // the curves are equal
	matrix [3][3]float64 // to linear sRGB

	light8  [3][256]float64
	light16 func() *[3][1 << 16]float32 // half a megabyte or more, so only built for a picture of 16 bits
}

// srgbToXYZ has the primaries of sRGB, adapted to D50 as in profiles (Bradford; ICC.1:2010, annex E).
var srgbToXYZ = [3][3]float64{
	{0.4360747, 0.3850649, 0.1430804},
	{0.2225045, 0.7168786, 0.0606169},
	{0.0139322, 0.0971045, 0.7141733},
}

var xyzToSRGB = inverse(srgbToXYZ)

// transform is nil if the profile is that of sRGB, or so near that no one could tell. space is that of the picture.
func (p iccProfile) transform(space string) (*transform, error) {
	switch {
	case p.space == spaceCMYK, space == spaceCMYK:
		return nil, errors.New("profiles for CMYK are not applied; convert the picture to sRGB for exact colours")
	case p.space != spaceRGB && p.space != spaceGray || p.space == spaceGray && space == spaceRGB:
		return nil, errors.New("it is for pictures of another kind")
	case p.curves == nil && p.table:
		return nil, errors.New("profiles that are tables of colours are not applied; convert the picture to sRGB for exact colours")
	case p.curves == nil:
		return nil, errProfile
	case p.lab:
		return nil, errors.New("profiles that lead to CIELAB are not applied; convert the picture to sRGB for exact colours")
	}
	t := &transform{matrix: [3][3]float64{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}}
	if p.space == spaceRGB {
		t.matrix = times(xyzToSRGB, p.matrix)
		for i, row := range t.matrix {
			// White stays white: the rounding of a profile must not tint it. More than rounding is not a profile.
			white := row[0] + row[1] + row[2]
			if !(math.Abs(white-1) < 0.1) {
				return nil, errors.New("its primaries are not those of a profile")
			}
			for j := range row {
				t.matrix[i][j] /= white
			}
		}
	}
	for i := range t.curves {
		t.curves[i] = p.curves[min(i, len(p.curves)-1)]
	}
	t.same = true
	for v := range 256 {
		for c := range 3 {
			l := unitLight(t.curves[c](float64(v) / 0xff))
			t.light8[c][v] = l
			t.same = t.same && l == t.light8[0][v]
		}
	}
	if t.light8[0][255]-t.light8[0][0] < 0.5 {
		return nil, errProfile // everything would look alike
	}
	t.light16 = sync.OnceValue(func() *[3][1 << 16]float32 {
		table := new([3][1 << 16]float32)
		for c, f := range t.curves {
			for v := range table[c] {
				table[c][v] = float32(unitLight(f(float64(v) / 0xffff)))
			}
		}
		return table
	})
	if t.isSRGB() {
		return nil, nil
	}
	return t, nil
}

// unitLight limits what a curve gives to an amount of light.
func unitLight(l float64) float64 {
	if !(l > 0) { // nor not a number
		return 0
	}
	return min(l, 1)
}

// isSRGB reports whether no colour of a grid changes by more than a step of 8 bits.
func (t *transform) isSRGB() bool {
	for r := 0; r < 256; r += 15 {
		for g := 0; g < 256; g += 15 {
			for b := 0; b < 256; b += 15 {
				p := rgb8{uint8(r), uint8(g), uint8(b)}
				q := p
				t.apply8(&q)
				for c := range p {
					if int(p[c])-int(q[c]) > 1 || int(q[c])-int(p[c]) > 1 {
						return false
					}
				}
			}
		}
	}
	return true
}

// linear brings light of the profile's primaries to that of sRGB, which is clipped.
func (t *transform) linear(r, g, b float64) Linear {
	m := &t.matrix
	return Linear{
		R: unitLight(m[0][0]*r + m[0][1]*g + m[0][2]*b),
		G: unitLight(m[1][0]*r + m[1][1]*g + m[1][2]*b),
		B: unitLight(m[2][0]*r + m[2][1]*g + m[2][2]*b),
	}
}

// encodeSteps is the number of amounts of light in encode8Table. A step of 8 bits is at least 10 of them.
const encodeSteps = 1 << 15

var encode8Table = sync.OnceValue(func() *[encodeSteps + 1]uint8 {
	t := new([encodeSteps + 1]uint8)
	for i := range t {
		t[i] = Encode8(float64(i) / encodeSteps)
	}
	return t
})

func (t *transform) apply8(p *rgb8) {
	l := t.linear(t.light8[0][p[0]], t.light8[1][p[1]], t.light8[2][p[2]])
	e := encode8Table()
	*p = rgb8{e[int(l.R*encodeSteps+0.5)], e[int(l.G*encodeSteps+0.5)], e[int(l.B*encodeSteps+0.5)]}
}

func (t *transform) apply16(p *rgb16) {
	table := t.light16()
	l := t.linear(float64(table[0][p[0]]), float64(table[1][p[1]]), float64(table[2][p[2]]))
	*p = rgb16{encode16(l.R), encode16(l.G), encode16(l.B)}
}

// encode16 is Encode8 for a 16-bit value.
func encode16(light float64) uint16 {
	v := 12.92 * light
	if light > 0.0031308 {
		v = 1.055*math.Pow(light, 1/2.4) - 0.055
	}
	return uint16(min(max(v, 0), 1)*0xffff + 0.5)
}

// profiled shows an image in sRGB without copying it. Like everything that this package reads, it is seen over
// white. Only [Decode] makes one.
type profiled struct {
	src image.Image
	t   *transform
}

// view returns a view of img in sRGB. A nil transform changes nothing.
func (t *transform) view(img image.Image) image.Image {
	if t == nil {
		return img
	}
	return &profiled{img, t}
}

func (p *profiled) Bounds() image.Rectangle { return p.src.Bounds() }
func (p *profiled) Opaque() bool            { return true }

func (p *profiled) ColorModel() color.Model {
	if deep(p.src) {
		return color.RGBA64Model
	}
	return color.RGBAModel
}

func (p *profiled) At(x, y int) color.Color { return p.RGBA64At(x, y) }

func (p *profiled) RGBA64At(x, y int) color.RGBA64 {
	if !image.Pt(x, y).In(p.src.Bounds()) {
		return color.RGBA64{}
	}
	var r, g, b uint32
	if deep(p.src) {
		var one [1]rgb16
		row16(p, x, y, one[:])
		r, g, b, _ = one[0].RGBA()
	} else {
		var one [1]rgb8
		row8(p, x, y, one[:])
		r, g, b, _ = one[0].RGBA()
	}
	return color.RGBA64{R: uint16(r), G: uint16(g), B: uint16(b), A: 0xffff}
}

// eachCell is EachCell: if the curves are equal, it averages the light of the profile's primaries, to which
// the matrix may be applied as well afterwards. That is as fast as without a profile.
func (p *profiled) eachCell(r image.Rectangle, cols, rows int, each func(x, y int, mean Linear)) {
	t := p.t
	switch {
	case !t.same && deep(p.src):
		average(p, r, cols, rows, row16, light16(), each)
		return
	case !t.same:
		average(p, r, cols, rows, row8, light8[:], each)
		return
	}
	inSRGB := func(x, y int, mean Linear) { each(x, y, t.linear(mean.R, mean.G, mean.B)) }
	if deep(p.src) {
		table := t.light16()
		light := make([]uint64, 1<<16)
		for i := range light {
			light[i] = uint64(math.Round(float64(table[0][i]) * unit))
		}
		average(p.src, r, cols, rows, row16, light, inSRGB)
		return
	}
	light := make([]uint64, 1<<8)
	for i := range light {
		light[i] = uint64(math.Round(t.light8[0][i] * unit))
	}
	average(p.src, r, cols, rows, row8, light, inSRGB)
}

func times(a, b [3][3]float64) (m [3][3]float64) {
	for i := range 3 {
		for j := range 3 {
			m[i][j] = a[i][0]*b[0][j] + a[i][1]*b[1][j] + a[i][2]*b[2][j]
		}
	}
	return m
}

// inverse is that of a matrix that has one.
func inverse(m [3][3]float64) (n [3][3]float64) {
	minor := func(i, j int) float64 {
		a, b := m[(i+1)%3], m[(i+2)%3]
		return a[(j+1)%3]*b[(j+2)%3] - a[(j+2)%3]*b[(j+1)%3]
	}
	det := m[0][0]*minor(0, 0) + m[0][1]*minor(0, 1) + m[0][2]*minor(0, 2)
	for i := range 3 {
		for j := range 3 {
			n[j][i] = minor(i, j) / det
		}
	}
	return n
}
