package dispatcher

import (
	"math"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

// Poison that is not moved is hidden in its queue for twice as long each time it comes up. A move
// that failed is soon tried again. Where nothing may be moved, coming up only shows that the
// message is still there.
const (
	firstMoveWait = time.Second
	maxMoveWait   = time.Hour
	firstKeptWait = time.Minute
	maxKeptWait   = 24 * time.Hour
)

// timesUnmoved returns how often the message was poison before and stayed in its queue. The mark in
// its head keeps the count of deliveries accounted for as it was at the first time; see
// recordedText. Without a mark, because the text could not be rewritten, all deliveries count of
// which nothing is recorded.
func (v *delivery) timesUnmoved() int64 {
	if v.marked {
		return v.lostDeliveries() + 1
	}
	return v.lostDeliveries()
}

// moveDelay returns how long a message waits whose move has failed. That is at least as long as a
// failed attempt would, as far as that grows while there are attempts left, and grows with every
// failed move, because nothing bounds their number.
func (v *delivery) moveDelay(err error) time.Duration {
	maxTries := int64(max(v.attempt(), v.maxAttempts()))
	tries := max(v.attempt(), int(min(v.queued.DequeueCount, maxTries)))
	return v.untilSeenAgain(max(v.retryDelay(tries, err), v.unmovedDelay(firstMoveWait, maxMoveWait)))
}

// keptDelay returns how long a message waits that is poison and may not be moved.
func (v *delivery) keptDelay() time.Duration {
	return v.untilSeenAgain(v.unmovedDelay(firstKeptWait, maxKeptWait))
}

// unmovedDelay returns a delay between the bounds for poison that was not moved.
func (v *delivery) unmovedDelay(first, longest time.Duration) time.Duration {
	n := v.timesUnmoved()
	return doubled(first, longest, n, waiting.Jitter(string(v.queued.ID), int(min(n, math.MaxInt32))))
}

// untilSeenAgain bounds the delay by half of the message's remaining life: it is to be delivered
// again before it is gone.
func (v *delivery) untilSeenAgain(delay time.Duration) time.Duration {
	if v.lease.messageEnd.IsZero() {
		return delay
	}
	return max(min(delay, time.Until(v.lease.messageEnd)/2), 0)
}

// doubled returns first, doubled n times, ± 10 %, within first and longest; spread is its jitter in
// [0, 1).
func doubled(first, longest time.Duration, n int64, spread float64) time.Duration {
	d := math.Ldexp(float64(first), int(min(max(n, 0), 64))) * (0.9 + 0.2*spread)
	return max(time.Duration(min(d, float64(longest))), first)
}
