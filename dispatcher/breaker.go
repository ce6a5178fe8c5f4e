package dispatcher

import (
	"context"
	"strconv"
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
	minFailures = 16 // in a row, or as many as there are slots, if that is more
	firstPause  = time.Second
	maxPause    = 15 * time.Second
	probeSlots  = 1
)

// breaker watches the results of handlers and holds reservations back.
type breaker struct {
	mu        sync.Mutex
	threshold int             // failures in a row that open it; guarded by mu
	failures  int             // in a row, while it is closed; guarded by mu
	open      bool            // messages are held back; guarded by mu
	opened    chan struct{}   // closed when it opens, replaced when it closes; guarded by mu
	pauses    backoff.BackOff // how long to wait next; guarded by mu
	until     time.Time       // when the next probe may be let through; guarded by mu
	probed    time.Time       // when the probe was let through whose result is awaited; zero for none; guarded by mu
	changed   chan struct{}   // closed and replaced when anything here changes; guarded by mu
}

// newBreaker returns a closed one. The seed spreads its pauses: processes that meet the
// same outage do not probe together.
func newBreaker(concurrency int, seed uint64) *breaker {
	b := &breaker{
		pauses:  retry.Waits("breaker/"+strconv.FormatUint(seed, 16), firstPause, maxPause),
		opened:  make(chan struct{}),
		changed: make(chan struct{}),
	}
	b.resize(concurrency)
	return b
}

// resize follows a change of the concurrency. One that is open stays so.
func (b *breaker) resize(concurrency int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.threshold = max(minFailures, concurrency)
}

// succeeded closes the breaker, whoever succeeded: also a probe that was given up for
// another.
func (b *breaker) succeeded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = 0
	if !b.open {
		return
	}
	b.open = false
	b.opened = make(chan struct{})
	b.pauses.Reset()
	b.notify()
}

// failed counts the failure of a delivery that was asked for at that instant, and opens
// the breaker when there were too many in a row. While it is open only the probe's
// failure means another pause, not those of handlers that began before.
func (b *breaker) failed(attempt int, asked time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		if !b.awaitsResult(asked) {
			return
		}
	} else {
		if attempt > 1 {
			return
		}
		if b.failures++; b.failures < b.threshold {
			return
		}
		b.open = true
		close(b.opened)
	}
	b.probed, b.until = time.Time{}, time.Now().Add(b.pauses.NextBackOff())
	b.notify()
}

// note takes the decision on a delivery, whose handler ran or did not, as a result. A
// handler that says poison, discard or snooze works.
func (b *breaker) record(dec decision, ran bool, attempt int, asked time.Time) {
	switch {
	case !ran || dec.outcome == Lost || dec.outcome == GivenBack:
		b.unknown(asked)
	case dec.outcome == Retried, dec.reason == poison.ReasonAttempts, dec.reason == poison.ReasonExpiring:
		b.failed(attempt, asked)
	default:
		b.succeeded()
	}
}

// unknown ends a probe that told nothing, such as one that found no message: the next
// one may go at once.
func (b *breaker) unknown(asked time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.awaitsResult(asked) {
		b.probed, b.until = time.Time{}, time.Time{}
		b.notify()
	}
}

// awaits tells whether what was asked for at that instant is the probe whose result is
// awaited: neither from before the outage nor an earlier probe. Requires mu.
func (b *breaker) awaitsResult(asked time.Time) bool {
	return !b.probed.IsZero() && !asked.Before(b.probed)
}

// probe notes that a message is let through, if it is still worth one. Whatever becomes
// of it, the next one goes after the longest pause: its handler may hang.
func (b *breaker) probe() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		b.probed = time.Now()
		b.until = b.probed.Add(maxPause)
	}
}

// notify wakes those who wait. Requires mu.
func (b *breaker) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// pass waits until messages may be fetched, and says whether only one may, as a probe: the
// caller, who has the turn to reserve, tells when it has the slot for it. It returns false
// when ctx ended first.
func (b *breaker) await(ctx context.Context) (probe, ok bool) {
	for {
		b.mu.Lock()
		open, wait, changed := b.open, time.Until(b.until), b.changed
		b.mu.Unlock()
		if !open || wait <= 0 {
			return open, true
		}
		if !waitForChange(ctx, changed, wait) {
			return false, false
		}
	}
}

// isOpen tells whether messages are held back.
func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// opening returns what is closed while messages are held back, and when that begins.
func (b *breaker) openSignal() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened
}

// hold waits for a change, or for the time to pass.
func waitForChange(ctx context.Context, changed <-chan struct{}, wait time.Duration) bool {
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
		return false
	}
	return true
}
