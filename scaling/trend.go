package scaling

import "math"

// fit is a least-squares line through figures over time. Both are counted from the newest, which
// keeps the sums accurate. The zero value has no points.
type fit struct{ n, x, y, xx, xy, yy float64 }

func (f *fit) add(x, y float64) {
	f.n++
	f.x += x
	f.y += y
	f.xx += x * x
	f.xy += x * y
	f.yy += y * y
}

// leastPoints is how many points a trend has at least.
const leastPoints = 5

// certainty is by how many standard errors a slope must exceed zero to count as a trend. With 15
// points, noise alone exceeds 3 once in 200 times.
const certainty = 3

// rise returns by how much the figures grow per second, or 0 if they do not, or if that may be
// noise.
func (f *fit) rise() float64 {
	if f.n < leastPoints {
		return 0
	}
	spread := f.xx - f.x*f.x/f.n
	if spread <= 0 {
		return 0
	}
	slope := (f.xy - f.x*f.y/f.n) / spread
	rest := max(f.yy-f.y*f.y/f.n-slope*slope*spread, 0)
	standardError := math.Sqrt(rest / (f.n - 2) / spread)
	if !(slope > certainty*standardError) {
		return 0
	}
	return slope
}
