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
	mostSlots    = 1e6
)

// A figure below these would divide by nothing.
const (
	leastHandling = 1e-6 // seconds
	leastSlots    = 1e-3
)

// rate returns a known rate, or false if it is unknown or absurd. The comparisons are false for NaN.
func rate(o Optional[float64]) (float64, bool) {
	return o.value, o.known && o.value >= 0 && o.value <= mostRate
}

// count returns a known count, or false if it is unknown or absurd.
func count[T int | int64](o Optional[T]) (float64, bool) {
	v := float64(o.value)
	return v, o.known && v >= 0 && v <= mostCount
}

// handling returns a known handling time in seconds, or false if it is unknown or absurd.
func handling(s *Sample) (float64, bool) {
	d := s.Handling.value
	return max(d.Seconds(), leastHandling), s.Handling.known && d >= 0 && d <= mostHandling
}

// slots returns how many handlers an instance runs at once, or false if that is unknown or absurd.
func slots(s *Sample) (float64, bool) {
	v := s.Slots.value
	return v, s.Slots.known && v >= leastSlots && v <= mostSlots
}

// instances returns how many instances there were, those included that were starting.
func instances(s *Sample) float64 { return float64(max(s.Instances, 0)) }

// mean is an average of figures, as far as they were known.
type mean struct{ n, sum float64 }

func (m *mean) add(v float64, known bool) {
	if known {
		m.n++
		m.sum += v
	}
}

// of returns the average, or false if no figure was known.
func (m *mean) of() (float64, bool) {
	if m.n == 0 {
		return 0, false
	}
	return m.sum / m.n, true
}

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
