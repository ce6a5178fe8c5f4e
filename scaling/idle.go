package scaling

import (
	"math"
	"math/rand/v2"
	"time"
)

// Idle is how long a loop waits between polls of an empty queue. The zero value is the default.
// It may be copied.
type Idle struct {
	// Min is the shortest wait, after the first empty poll. Defaults to 100 ms, or to Max if
	// that is shorter.
	Min time.Duration

	// Max is the longest wait. A loop whose wait has reached it may end. Defaults to 1 s, or to
	// Min if that is longer.
	Max time.Duration

	// Fleet is how many instances poll the queue. Once its curve has reached Max, a loop waits Fleet ×
	// Max between polls instead of Max, from a random phase on, so that with one loop each they poll
	// once per Max together. The package's documentation has what that means for the pickup of a
	// message. It must not be negative. 0 counts as 1. Defaults to 1.
	Fleet int

	// New returns the curve of one loop; it is called once per loop. If it returns nil or
	// panics, the default is used and OnError is called. Defaults to nil, which means
	// [CurveFrom] of Min and Max with the listener's own random numbers.
	New func() BackOff
}

// BackOff is the curve of one loop: how long it waits after each empty poll. It need not be safe
// for concurrent use. The policies of github.com/cenkalti/backoff/v4 implement it.
type BackOff interface {
	// NextBackOff returns the wait after one more empty poll in a row. The listener clamps it to
	// Min…Max of its [Idle]; a negative wait, such as Stop of cenkalti/backoff, means Max.
	NextBackOff() time.Duration

	// Reset starts over. It is called after a poll that found work.
	Reset()
}

// deltaBackoff and its jitter are constants of the formula.
const (
	deltaBackoff = 100.0 // milliseconds
	jitterLow    = 0.8
	jitterHigh   = 1.2
)

// Curve is the default back-off: after the k-th consecutive empty poll the wait is min(minWait
// + int((2^k − 1) × r) ms, maxWait), where r is a random integer in 80…119. It never stops.
// Negative bounds count as zero. Like every BackOff it is not safe for concurrent use.
func Curve(minWait, maxWait time.Duration) BackOff {
	return CurveFrom(minWait, maxWait, rand.IntN)
}

// CurveFrom is [Curve] with its own source of random numbers, so that a run can be repeated:
// random(n) returns a number in [0, n).
func CurveFrom(minWait, maxWait time.Duration, random func(n int) int) BackOff {
	return &curve{min: max(minWait, 0), max: max(maxWait, 0), random: random}
}

type curve struct {
	min, max time.Duration
	empty    int // consecutive empty polls
	random   func(n int) int
}

// NextBackOff counts one more empty poll and returns the wait after it.
func (c *curve) NextBackOff() time.Duration {
	c.empty++
	r := jitterLow*deltaBackoff + float64(c.random(int((jitterHigh-jitterLow)*deltaBackoff)))
	return interval(c.min, c.max, c.empty, r)
}

// Reset starts over, as after a poll that found work.
func (c *curve) Reset() { c.empty = 0 }

// interval clamps in floating point, before it converts: from the 25th empty poll on, 2^k × r
// exceeds 32 bits, and later the 64 bits of a Duration, and the wait would become negative.
func interval(minWait, maxWait time.Duration, empty int, r float64) time.Duration {
	delta := math.Trunc((math.Exp2(float64(empty)) - 1) * r)
	if d := delta * float64(time.Millisecond); d < float64(maxWait-minWait) {
		return minWait + time.Duration(d)
	}
	return maxWait
}
