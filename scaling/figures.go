package scaling

import (
	"math"
	"time"
)

// Figures beyond these are absurd, and count as unknown. They also keep sums and products of
// figures finite.
const (
	mostCount    = 1e15
	mostRate     = 1e12 // a second
	mostHandling = 30 * 24 * time.Hour
	leastSlots   = 1e-3
	mostSlots    = 1e6
)

// leastHandling stands for a handling time of zero, in seconds.
const leastHandling = 1e-6

// rate returns a rate, or NaN if it is unknown or absurd. The comparisons are false for NaN.
func rate(o Optional[float64]) float64 {
	if o.known && o.value >= 0 && o.value <= mostRate {
		return o.value
	}
	return unknown
}

// count returns a count, or NaN if it is unknown or absurd.
func count[T int | int64](o Optional[T]) float64 {
	if v := float64(o.value); o.known && v >= 0 && v <= mostCount {
		return v
	}
	return unknown
}

// handling returns a handling time in seconds, or NaN if it is unknown or absurd.
func handling(s *Sample) float64 {
	if d := s.Handling.value; s.Handling.known && d >= 0 && d <= mostHandling {
		return max(d.Seconds(), leastHandling)
	}
	return unknown
}

// slots returns how many handlers an instance runs at once, or NaN if that is unknown or absurd.
func slots(s *Sample) float64 {
	if v := s.Slots.value; s.Slots.known && v >= leastSlots && v <= mostSlots {
		return v
	}
	return unknown
}

// mean is an average of figures, as far as they are known.
type mean struct{ n, sum float64 }

func (m *mean) add(v float64) {
	if known(v) {
		m.n++
		m.sum += v
	}
}

// of returns the average, or NaN if no figure was known.
func (m *mean) of() float64 { return m.sum / m.n }

// ceil is the next integer, as an instance count. What exceeds an integer by no more than the
// error of its computation counts as that integer.
func ceil(v float64) int {
	const most = 1 << 30
	n := math.Ceil(v * (1 - 1e-9))
	if !(n < most) { // NaN too
		return most
	}
	return int(max(n, 0))
}
