package limited

import (
	"math"
	"time"

	"golang.org/x/time/rate"
)

// bucket is a token bucket to which what was not used can be given back. The zero value is no limit.
// The lock of the Limit guards it.
type bucket struct {
	limiter *rate.Limiter
	credit  float64 // given back
	waiting int     // taken by those who wait for their turn: it is still in the bucket, or will be
	largest int     // the most that one of them has taken
}

func newBucket(perSecond float64, burst time.Duration) bucket {
	if perSecond == 0 {
		return bucket{}
	}
	// At least one, or nothing would ever be allowed.
	size := int(max(1, min(perSecond*burst.Seconds(), math.MaxInt32)))
	return bucket{limiter: rate.NewLimiter(rate.Limit(perSecond), size)}
}

// most returns how many of n fit into the bucket, and in a second: those that wait for more would wait for
// long at a low rate.
func (b *bucket) most(n int) int {
	if b.limiter == nil {
		return n
	}
	return max(1, min(n, b.limiter.Burst(), int(b.limiter.Limit())))
}

// wait returns how long it takes until n may be taken.
func (b *bucket) wait(now time.Time, n int) time.Duration {
	if b.limiter == nil || n == 0 {
		return 0
	}
	b.clamp(now)
	missing := float64(n) - b.limiter.TokensAt(now) - b.credit
	if missing < 1e-6 { // what rounding leaves
		return 0
	}
	seconds := missing / float64(b.limiter.Limit())
	return time.Duration(min(math.Ceil(seconds*1e9), math.MaxInt64/2))
}

// take takes n, whether it is there or not: who comes later waits until it is. n is at most the burst.
func (b *bucket) take(now time.Time, n int) {
	if b.limiter == nil {
		return
	}
	b.clamp(now)
	whole := min(n, int(b.credit+1e-6))
	b.credit = max(b.credit-float64(whole), 0)
	if n > whole {
		b.limiter.ReserveN(now, n-whole)
	}
}

// charge takes n, in parts if it is more than the burst.
func (b *bucket) charge(now time.Time, n int) {
	for b.limiter != nil && n > 0 {
		part := min(n, b.limiter.Burst())
		b.take(now, part)
		n -= part
	}
}

// giveBack returns n that were taken and not used. What the bucket cannot hold is lost, as it would be
// had it never been taken.
func (b *bucket) giveBack(now time.Time, n int) {
	if b.limiter == nil {
		return
	}
	b.credit += float64(n)
	b.clamp(now)
}

// clamp removes the credit that the bucket cannot hold.
func (b *bucket) clamp(now time.Time) {
	room := float64(b.limiter.Burst()-b.waiting) - b.limiter.TokensAt(now)
	if b.waiting > 0 { // who comes now counts on the credit, and it must fit beside what comes in before each turn
		room = min(room, float64(b.limiter.Burst()-b.largest))
	}
	b.credit = max(min(b.credit, room), 0)
}

// await records that n were taken by one who waits for his turn.
func (b *bucket) await(n int) {
	b.waiting += n
	b.largest = max(b.largest, n)
}

// served records that one who waited has had his turn.
func (b *bucket) served(now time.Time, n int) {
	if b.limiter != nil {
		b.clamp(now) // while it is in the bucket
	}
	if b.waiting -= n; b.waiting == 0 {
		b.largest = 0
	}
}
