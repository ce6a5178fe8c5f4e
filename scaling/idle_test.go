package scaling

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const ms = time.Millisecond

// always returns a source of random numbers that always yields r in 80…119.
func always(r int) func(int) int { return func(int) int { return r - 80 } }

// L-26, L-22: the curve matches the vectors of the requirements.
func TestTheCurveMatchesTheVectors(t *testing.T) {
	for _, c := range []struct {
		least, most time.Duration
		empty       int
		low, high   time.Duration
	}{
		{0, 1000 * ms, 1, 80 * ms, 119 * ms},
		{0, 1000 * ms, 2, 240 * ms, 357 * ms},
		{0, 1000 * ms, 3, 560 * ms, 833 * ms},
		{0, 1000 * ms, 4, 1000 * ms, 1000 * ms},
		{0, 1000 * ms, 1000, 1000 * ms, 1000 * ms},
		{50 * ms, 5000 * ms, 1, 130 * ms, 169 * ms},
		{50 * ms, 5000 * ms, 6, 5000 * ms, 5000 * ms},
		{700 * ms, 700 * ms, 1, 700 * ms, 700 * ms},
	} {
		for r, want := range map[int]time.Duration{80: c.low, 119: c.high} {
			if got := Curve(c.least, c.most, c.empty, always(r)); got != want {
				t.Errorf("min %v max %v, empty poll %d, r %d: got %v, want %v", c.least, c.most, c.empty, r, got, want)
			}
		}
	}
}

// L-26: the number of empty polls after which a loop may end, and the time they take.
func TestTheCurveReachesItsCapAfterTheSamePolls(t *testing.T) {
	for _, c := range []struct {
		least, most           time.Duration
		r, polls              int
		shortest, longestWait time.Duration
	}{
		{0, 1000 * ms, 80, 4, 880 * ms, 880 * ms},
		{0, 1000 * ms, 119, 4, 1309 * ms, 1309 * ms},
		{50 * ms, 5000 * ms, 80, 6, 0, time.Hour},
		{50 * ms, 5000 * ms, 119, 6, 0, time.Hour},
		{time.Second, time.Minute, 80, 10, 50 * time.Second, 125 * time.Second},
		{time.Second, time.Minute, 119, 9, 50 * time.Second, 125 * time.Second},
		{time.Second, time.Second, 119, 1, 0, 0},
	} {
		polls, waited := 0, time.Duration(0)
		for {
			polls++
			wait := Curve(c.least, c.most, polls, always(c.r))
			if wait >= c.most {
				break
			}
			waited += wait
		}
		if polls != c.polls || waited < c.shortest || waited > c.longestWait {
			t.Errorf("min %v max %v r %d: ends at empty poll %d after %v, want poll %d after %v…%v",
				c.least, c.most, c.r, polls, waited, c.polls, c.shortest, c.longestWait)
		}
	}
}

// sane is the check of X-02: a wait is never below Min or above Max.
func sane(wait, minWait, maxWait time.Duration) bool { return minWait <= wait && wait <= maxWait }

// naive computes with 32-bit milliseconds, to show that the check of X-02 detects the overflow.
func naive(minWait, maxWait time.Duration, empty int, r float64) time.Duration {
	delta := int32(int64((math.Exp2(float64(empty)) - 1) * r)) // wraps, as .NET does unchecked
	interval := min(int32(minWait/ms)+delta, int32(maxWait/ms))
	return time.Duration(interval) * ms
}

// X-02, L-27: the interval is clamped before it is converted to an integer.
func TestTheCurveNeverOverflows(t *testing.T) {
	empties := []int{0, 1, 24, 25, 32, 63, 64, 1000, math.MaxInt32, math.MaxInt}
	caught := 0
	for _, empty := range empties {
		if wait := interval(0, time.Second, empty, 80); !sane(wait, 0, time.Second) {
			t.Errorf("empty poll %d: got a wait of %v, want one within 0…1 s", empty, wait)
		}
		if empty > 24 && interval(0, time.Second, empty, 80) != time.Second {
			t.Errorf("empty poll %d: got a wait below the cap, want 1 s", empty)
		}
		if !sane(naive(0, time.Second, empty, 80), 0, time.Second) {
			caught++
		}
	}
	if caught == 0 {
		t.Error("the check lets the source's 32-bit arithmetic pass: it proves nothing")
	}
	if naive(0, time.Second, 25, 80) >= 0 {
		t.Error("the source overflows at the 25th empty poll; the naive variant does not")
	}
}

// waits stay within the bounds.
func TestWaitsStayWithinBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "least"))
		most := least + time.Duration(rapid.Int64Range(0, math.MaxInt64-int64(time.Hour)).Draw(t, "span"))
		last := time.Duration(0)
		for i := range rapid.IntRange(1, 80).Draw(t, "polls") {
			wait := Curve(least, most, i+1, rand.IntN)
			if !sane(wait, least, most) {
				t.Fatalf("got a wait of %v, want one within %v…%v", wait, least, most)
			}
			if wait < last {
				t.Fatalf("wait shrank from %v to %v without work", last, wait)
			}
			last = wait
		}
		if first := Curve(least, most, 1, rand.IntN); !sane(first, least, least+120*ms) {
			t.Fatalf("first wait: got %v, want %v…%v", first, least, least+120*ms)
		}
	})
}

// loops that are idle at the same time must not get the same jitter. The naive variant
// makes a new generator for each call, seeded by the clock; here the clock stands still, as it
// does between loops that wake together. Requirement L-21.
func TestLoopsDrawDifferentJitter(t *testing.T) {
	spread := func(draw func() time.Duration) (different int) {
		waits := map[time.Duration]bool{}
		for range 200 {
			wait := draw()
			waits[wait] = true
			if wait < 80*ms || wait > 119*ms {
				t.Errorf("got a wait of %v, want 80…119 ms", wait)
			}
		}
		return len(waits)
	}
	const enough = 10 // of the 40 that there are
	if n := spread(func() time.Duration { return Curve(0, time.Second, 1, rand.IntN) }); n < enough {
		t.Errorf("200 loops: got %d different waits of 40, want at least %d", n, enough)
	}
	clock := uint64(time.Now().UnixMilli())
	if n := spread(func() time.Duration {
		return Curve(0, time.Second, 1, rand.New(rand.NewPCG(clock, 0)).IntN)
	}); n >= enough {
		t.Error("the check lets a generator a call pass: it proves nothing")
	}
}
