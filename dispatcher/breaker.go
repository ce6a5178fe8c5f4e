package dispatcher

import (
	"context"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/poison"
)

// When everything fails it is not the jobs: a database is down, a disk is full. Going
// on would only burn their attempts. After this many first attempts that failed in a
// row the consumer waits, then lets one message through as a probe, and takes up its
// work when one succeeds. Later attempts do not count: a heap of bad messages on their
// way to the poison queue is no outage.
const (
	leastFailures  = 16 // in a row, or as many as there are slots, if that is more
	firstPause     = time.Second
	longestPause   = 15 * time.Second
	probingReserve = 1
)

// breaker watches the results of handlers and holds reservations back.
type breaker struct {
	threshold int

	mu       sync.Mutex
	failures int             // in a row; guarded by mu
	pauses   backoff.BackOff // how long to wait next; guarded by mu
	until    time.Time       // when the next probe may be let through; guarded by mu
	probing  bool            // a probe is on its way; guarded by mu
	changed  chan struct{}   // closed and replaced when anything here changes; guarded by mu
}

func newBreaker(concurrency int) *breaker {
	return &breaker{
		threshold: max(leastFailures, concurrency),
		pauses:    retry.Waits("breaker", firstPause, longestPause),
		changed:   make(chan struct{}),
	}
}

// succeeded closes the breaker.
func (b *breaker) succeeded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures == 0 {
		return
	}
	if b.failures >= b.threshold {
		b.pauses.Reset()
		b.notify()
	}
	b.failures, b.probing = 0, false
}

// failed counts a failure, and opens the breaker when there were too many in a row.
func (b *breaker) failed(attempt int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < b.threshold && attempt > 1 {
		return
	}
	b.failures++
	// One pause a round: not for each of the handlers that were still running.
	if b.failures == b.threshold || b.failures > b.threshold && b.probing {
		b.until = time.Now().Add(b.pauses.NextBackOff())
		b.probing = false
		b.notify()
	}
}

// note takes the decision on a delivery, whose handler ran or did not, as a result. A
// handler that says poison, discard or snooze works.
func (b *breaker) note(what decision, ran bool, attempt int) {
	switch {
	case !ran || what.outcome == Lost || what.outcome == GivenBack:
		b.unknown()
	case what.outcome == Retried, what.reason == poison.ReasonAttempts, what.reason == poison.ReasonExpiring:
		b.failed(attempt)
	default:
		b.succeeded()
	}
}

// unknown ends a probe that told nothing, such as one that found no message.
func (b *breaker) unknown() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.probing {
		b.probing = false
		b.notify()
	}
}

// notify wakes those who wait. Requires mu.
func (b *breaker) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// pass waits until messages may be fetched, and says whether only one may: a probe. It
// returns false when ctx ended first. The caller has the turn to reserve.
func (b *breaker) pass(ctx context.Context) (probe, ok bool) {
	for {
		b.mu.Lock()
		if b.failures < b.threshold {
			b.mu.Unlock()
			return false, true
		}
		wait := time.Until(b.until)
		if wait <= 0 && !b.probing {
			b.probing = true
			b.mu.Unlock()
			return true, true
		}
		changed := b.changed
		b.mu.Unlock()
		if !hold(ctx, changed, wait) {
			return false, false
		}
	}
}

// open tells whether messages are held back.
func (b *breaker) open() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failures >= b.threshold
}

// hold waits for a change, or for the time to pass if there is any left.
func hold(ctx context.Context, changed <-chan struct{}, wait time.Duration) bool {
	var passed <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		passed = t.C
	}
	select {
	case <-changed:
	case <-passed:
	case <-ctx.Done():
		return false
	}
	return true
}
