package scaling

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// Idle says how long a loop waits between polls of an empty queue. The zero
// value is the default; copying it is fine.
type Idle struct {
	// Min is the shortest wait, the one after work was found and none followed.
	// Defaults to 100 ms, or to Max if that is shorter.
	Min time.Duration

	// Max is the longest wait. A loop whose wait has reached it may end.
	// Defaults to 1 s, or to Min if that is longer.
	Max time.Duration

	// New makes the curve of one loop; it is called once a loop. What the curve
	// returns is clamped to Min…Max, backoff.Stop counting as Max. It must not
	// return nil: where it does, or panics, the default is used and OnError told.
	// Defaults to nil, for [CurveFrom] of Min and Max with the listener's own random
	// numbers.
	New func() backoff.BackOff
}

// deltaBackoff and its jitter are the source's constants (L-21).
const (
	deltaBackoff = 100.0 // milliseconds
	jitterLow    = 0.8
	jitterHigh   = 1.2
)

// Curve is the source's back-off: after the k-th empty poll in a row the wait is
// min(least + int((2^k − 1) × r) ms, most), r a random integer of 80…119
// (L-21, L-22). It never stops. A negative bound counts as zero. Like every
// BackOff it is for one goroutine at a time.
func Curve(minWait, maxWait time.Duration) backoff.BackOff {
	return CurveFrom(minWait, maxWait, rand.IntN)
}

// CurveFrom is [Curve] with its random numbers from elsewhere, so that a run can be
// repeated: random(n) returns one of [0, n).
func CurveFrom(minWait, maxWait time.Duration, random func(n int) int) backoff.BackOff {
	return &curve{min: max(minWait, 0), max: max(maxWait, 0), random: random}
}

type curve struct {
	min, max time.Duration
	empty    int // empty polls in a row
	random   func(n int) int
}

// NextBackOff counts one more empty poll and returns the wait after it.
func (c *curve) NextBackOff() time.Duration {
	c.empty++
	r := jitterLow*deltaBackoff + float64(c.random(int((jitterHigh-jitterLow)*deltaBackoff)))
	return interval(c.min, c.max, c.empty, r)
}

// Reset starts over, as after work was found.
func (c *curve) Reset() { c.empty = 0 }

// interval clamps in floating point, before it converts: from the 25th empty
// poll on, 2^k × r leaves the 32 bits of the source, whose survivor then slept a
// negative time (L-27, X-02); here it would leave the 64 of a Duration.
func interval(minWait, maxWait time.Duration, empty int, r float64) time.Duration {
	delta := math.Trunc((math.Exp2(float64(empty)) - 1) * r)
	if d := delta * float64(time.Millisecond); d < float64(maxWait-minWait) {
		return minWait + time.Duration(d)
	}
	return maxWait
}
