package dispatcher

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/poison"
)

// When every handler fails, the cause is not the jobs: a database is down, a disk is full. Going on
// would only use up their attempts. So after this many failed first attempts in a row the breaker
// opens: it pauses, then lets one message through as a probe, and closes when one succeeds. Later
// attempts do not count, because many bad messages on their way to the poison queue are not an
// outage. A body that cannot be read counts like a failed first attempt, because the store of the
// claims is away.
const (
	minFailures = 16 // in a row; as many as there are slots, if that is more
	firstPause  = time.Second
	maxPause    = 15 * time.Second
	probeSlots  = 1
)

// breaker is a circuit breaker: it counts the results of handlers and holds reservations back
// while all fail.
type breaker struct {
	mu        sync.Mutex
	threshold int           // failures in a row that open it; guarded by mu
	failures  int           // in a row, while it is closed; guarded by mu
	open      bool          // messages are held back; guarded by mu
	opened    chan struct{} // closed when it opens, replaced when it closes; guarded by mu
	since     time.Time     // when it opened; guarded by mu
	cause     error         // of the last failure, while it is open; guarded by mu
	pauses    *retry.Waits  // how long to wait next; guarded by mu
	until     time.Time     // when the next probe may be let through; guarded by mu
	probed    time.Time     // when the awaited probe was let through; zero if there is no such probe; guarded by mu
	changed   chan struct{} // closed and replaced when anything here changes; guarded by mu
}

// newBreaker returns a closed breaker. The seed spreads its pauses, so that processes in the same
// outage do not probe at the same time, and the kind spreads the pauses of several breakers.
func newBreaker(concurrency int, seed uint64, kind string) *breaker {
	b := &breaker{
		pauses:  retry.NewWaits("breaker/"+strconv.FormatUint(seed, 16)+kind, firstPause, maxPause),
		opened:  make(chan struct{}),
		changed: make(chan struct{}),
	}
	b.resize(concurrency)
	return b
}

// resize adapts the threshold to a new concurrency. An open breaker stays open.
func (b *breaker) resize(concurrency int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.threshold = max(minFailures, concurrency)
}

// succeeded closes the breaker. Any success counts, even of a probe that was replaced.
func (b *breaker) succeeded() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.failures = 0
	if !b.open {
		return
	}
	b.open, b.cause = false, nil
	b.opened = make(chan struct{})
	b.pauses.Reset()
	b.notify()
}

// failed counts the failure of a delivery that was requested at that time, and opens the
// breaker after too many in a row. While it is open only the newest probe's failure starts
// another pause; handlers that began earlier do not count.
func (b *breaker) failed(attempt int, asked time.Time, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		b.cause = cause
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
		b.open, b.since, b.cause = true, time.Now(), cause
		close(b.opened)
	}
	b.probed, b.until = time.Time{}, time.Now().Add(b.pauses.Next())
	b.notify()
}

// record takes the decision on a delivery as a result.
func (b *breaker) record(dec decision, attempt int, asked time.Time) {
	switch dec.health {
	case cutOff: // it is not on its way to the poison queue, even after many attempts
		b.failed(1, asked, dec.err)
	case unhealthy:
		b.failed(attempt, asked, dec.err)
	case healthy:
		b.succeeded()
	default:
		b.unknown(asked)
	}
}

// health says whether a handler's dependencies seem to work, judging by one delivery.
type health int

const (
	unclear   health = iota // its handler did not run, which includes one that was postponed
	healthy                 // the handler works
	unhealthy               // the handler has failed
	cutOff                  // the body could not be read: the store of the claims is away
)

// healthOf returns the health that follows from a decision, once the handler has returned. A
// handler that asks for poison, discard or snooze works, and so does one that succeeded for an item
// of a group. A group in which no item could be decoded says nothing.
func healthOf(dec decision, worked bool) health {
	switch {
	case !dec.called || dec.outcome == Lost || dec.outcome == GivenBack || dec.reason == poison.ReasonUndecodable && !worked:
		return unclear
	case worked:
		return healthy
	case dec.outcome == Retried, dec.reason == poison.ReasonAttempts, dec.reason == poison.ReasonExpiring:
		return unhealthy
	}
	return healthy
}

// unknown ends a probe without a result, such as one that found no message: the next probe may
// start immediately.
func (b *breaker) unknown(asked time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.awaitsResult(asked) {
		b.probed, b.until = time.Time{}, time.Now()
		b.notify()
	}
}

// awaitsResult reports whether the delivery requested at that time is the current probe:
// neither from before the outage nor an earlier probe. Requires mu.
func (b *breaker) awaitsResult(asked time.Time) bool {
	return !b.probed.IsZero() && !asked.Before(b.probed)
}

// probe records that a probe starts, if the breaker is still open. The next probe may follow after
// the longest pause in any case, because the handler of this one may hang.
func (b *breaker) probe() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open {
		b.probed = time.Now()
		b.until = b.probed.Add(maxPause)
	}
}

// notify wakes all waiters. Requires mu.
func (b *breaker) notify() {
	close(b.changed)
	b.changed = make(chan struct{})
}

// await blocks until messages may be fetched, and reports whether only one may, as a probe. The
// caller then calls probe when it has a slot. It returns false when ctx ended first.
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

// isOpen reports whether messages are held back.
func (b *breaker) isOpen() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open
}

// openSignal returns a channel that is closed while the breaker is open.
func (b *breaker) openSignal() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened
}

// waitForChange waits until changed is closed or the time has passed. It returns false when ctx
// ended first.
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
