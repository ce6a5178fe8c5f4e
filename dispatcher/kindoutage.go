package dispatcher

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/queue"
)

// The kinds of a queue fail apart: a broken mail server says nothing about invoices. So each kind
// has a breaker. While it is open, messages of the kind are given back as they come, without an
// attempt, but for a probe now and then; the others are handled. The breaker of the dispatcher is
// open exactly while those of all kinds are: then nothing is worth a dequeue but its probes.

// ErrOutage means that a message waits because the handlers of its kind keep failing. It is given
// back without an attempt, for as long as the outage has lasted: once in a while one is let through,
// and its success ends the outage. A message that would expire meanwhile does not wait.
var ErrOutage = errors.New("the handlers of its kind keep failing")

// maxHold is the longest time for which a message is given back in an outage of its kind. How often a
// message comes up therefore grows with the logarithm of the outage, up to that.
const maxHold = 10 * time.Minute

func (d *Dispatcher) breakKindsApart() {
	for _, k := range d.kinds {
		k.breaker = newBreaker(d.options.Concurrency, d.options.Seed, "/"+k.name)
	}
	d.breaker.threshold = 1 // all kinds, each of which has counted
}

func (d *Dispatcher) breakers() []*breaker {
	if d.kinds == nil {
		return []*breaker{d.breaker}
	}
	var all []*breaker
	for _, k := range d.kinds {
		all = append(all, k.breaker)
	}
	return all
}

// breaker returns the breaker that counts the failures of the delivery.
func (v *delivery) breaker() *breaker {
	if v.kind != nil {
		return v.kind.breaker
	}
	return v.dispatcher.breaker
}

// holdBack leaves a message for later while the handlers of its kind keep failing. A message in
// which that cannot be recorded is not held back, because each delivery of it counts as an attempt.
// Nor is one that would expire before it comes up again: it is poison when its handler has failed, and
// not before.
func (v *delivery) holdBack() (dec decision, held bool) {
	if v.kind == nil || !v.recordable() {
		return decision{}, false
	}
	now := time.Now()
	wait, cause := v.kind.breaker.admit(now, v.dispatcher.breaker.isProbe(v.lease.asked), v.attempt() >= v.maxAttempts())
	if wait == 0 {
		v.admittedAt = now
		return decision{}, false
	}
	// Not wrapped: it is the error of another message.
	dec = v.later(Snoozed, wait, fmt.Errorf("%w, %.60q; the last error: %.200s", ErrOutage, v.kind.name, fmt.Sprint(cause)))
	if dec.outcome != Snoozed || !v.hasRoomForHold() {
		return decision{}, false
	}
	return dec, true
}

// hasRoomForHold reports whether the message can carry the record that it was held back.
func (v *delivery) hasRoomForHold() bool {
	text := v.recordedText(v.attempt() - 1)
	return text != v.queued.Text && queue.CheckRequest(text, 0) == nil
}

// recordHealth tells the breakers what became of the delivery.
func (v *delivery) recordHealth(dec decision, ran bool) {
	d := v.dispatcher
	if v.kind == nil {
		d.breaker.record(dec, ran, v.attempt(), v.lease.asked)
		return
	}
	d.kindResults.Lock() // else the dispatcher's could open after the success of a kind
	defer d.kindResults.Unlock()
	v.kind.breaker.record(dec, ran, v.attempt(), v.admittedAt)
	if healthOf(dec, ran) != unhealthy || d.allOpen() {
		d.breaker.record(dec, ran, v.attempt(), v.lease.asked)
	}
}

// allOpen reports whether the breakers of all kinds are open.
func (d *Dispatcher) allOpen() bool {
	for _, k := range d.kinds {
		if !k.breaker.isOpen() {
			return false
		}
	}
	return true
}

// admit lets a message through if the breaker is closed, or if it is time for a probe, and returns
// 0. Otherwise it returns how long the message should wait, and the last error. Now is the time by
// which the result of the probe is known: see awaitsResult.
//
// A message on its last attempt would be poison when its probe fails. It is one only if no other came
// in the time after which all that wait have come up again.
func (b *breaker) admit(now time.Time, probe, lastAttempt bool) (wait time.Duration, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.open {
		return 0, nil
	}
	due := b.until
	if lastAttempt {
		due = due.Add(min(due.Sub(b.since), maxHold))
	}
	if due.After(now) && !probe {
		return min(max(now.Sub(b.since), time.Second), maxHold), b.cause
	}
	b.probed, b.until = now, now.Add(maxPause)
	return 0, nil
}

// isProbe reports whether the delivery requested at that time is the current probe.
func (b *breaker) isProbe(asked time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.open && b.awaitsResult(asked)
}
