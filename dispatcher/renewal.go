package dispatcher

import (
	"context"
	"time"

	"github.com/millrace/millrace/queue"
)

// Renewals are sent by goroutines, the renewers. A quarter as many as there are leases may be
// in flight at once, or minRenewers if that is more. Slow ones do not count, so that hanging
// requests do not keep other leases from being renewed.
const (
	minRenewers = 64
	slowRenewal = time.Second
)

// maxRenewalTimeout bounds how long the response to a renewal is awaited. The wait is shorter for
// a short lease: a response after the end of the old lease is still useful, one after the end of
// the new lease is not.
const maxRenewalTimeout = 20 * time.Second

// cleanUp is how long a handler may take to return after its time-out before its lease is
// renewed, if the lease lasts that long.
const cleanUp = time.Second

type renewalRequest struct {
	slowAt   time.Time // when it starts to count as slow
	done     bool      // it has returned; guarded by leaseManager.mu
	replaced bool      // it was slow, and its renewer is no longer counted; guarded by leaseManager.mu
}

// queueRenewal hands the lease to a renewer if a renewal is useful now. Requires mu.
func (k *leaseManager) queueRenewal(l *lease, now time.Time) {
	if l.renewAt = k.worthRenewing(l, now); l.renewAt.After(now) || l.renewAt.IsZero() {
		return
	}
	l.running = make(chan struct{})
	k.waiting = append(k.waiting, l)
	k.startRenewer()
}

// startRenewer starts a renewer if one is needed and allowed. Requires mu.
func (k *leaseManager) startRenewer() {
	if len(k.waiting) > 0 && k.renewers < max(minRenewers, len(k.leases)/4) {
		k.renewers++
		k.workers.Go(k.renew)
	}
}

// worthRenewing returns when a renewal would move the expiry: now, or later if the visibility
// has become shorter than what is left, or never (zero) if the message expires first. If the
// handler's time-out passes well before the lease ends, the renewal waits for it: most handlers
// return then. Requires mu.
func (k *leaseManager) worthRenewing(l *lease, now time.Time) time.Time {
	visibility := k.visibility(len(k.leases), now.Sub(l.asked))
	if !l.deadline.IsZero() {
		returned := l.deadline.Add(cleanUp)
		if l.expiry.Sub(returned) >= max(visibility/4, k.margin()) {
			return returned
		}
	}
	extension := k.extension(l, now, visibility)
	switch {
	case extension <= 0:
		return time.Time{}
	case now.Add(extension - safetyMargin).After(l.expiry):
		return now
	case extension < visibility:
		return time.Time{}
	}
	return l.expiry.Add(-visibility / 2)
}

// extension returns how much of the visibility a renewal asks for: the service refuses one that
// goes beyond the message's expiry when it arrives. Requires mu.
func (k *leaseManager) extension(l *lease, now time.Time, visibility time.Duration) time.Duration {
	if l.messageEnd.IsZero() {
		return visibility
	}
	return min(visibility, (l.messageEnd.Sub(now) - k.margin()).Truncate(time.Second))
}

// renew is a renewer: it renews waiting leases until there are none, or until it was slow and
// another renewer has replaced it.
func (k *leaseManager) renew() {
	for counts := true; counts; {
		k.mu.Lock()
		if len(k.waiting) == 0 {
			k.waiting = nil
			k.renewers--
			k.mu.Unlock()
			return
		}
		l := k.waiting[0]
		k.waiting = k.waiting[1:]
		k.mu.Unlock()
		counts, _ = k.send(l, true) // the delivery is told of the error
	}
}

// replaceSlow replaces renewers whose renewals have become slow, and returns when the next one
// will be, or zero. Requires mu.
func (k *leaseManager) replaceSlow(now time.Time) time.Time {
	for len(k.inFlight) > 0 {
		f := k.inFlight[0]
		if !f.done && f.slowAt.After(now) {
			return f.slowAt
		}
		k.inFlight = k.inFlight[1:]
		if !f.done {
			f.replaced = true
			k.renewers--
			k.startRenewer()
		}
	}
	k.inFlight = nil
	return time.Time{}
}

// renewNow sends one renewal, if it is still useful, for a caller that is not a renewer.
// l.running must be set.
func (k *leaseManager) renewNow(l *lease) error {
	_, err := k.send(l, false)
	return err
}

// send sends one renewal, if it is still useful, and reports whether its renewer still counts.
func (k *leaseManager) send(l *lease, renewer bool) (counts bool, err error) {
	k.mu.Lock()
	asked := time.Now()
	visibility := k.extension(l, asked, k.visibility(len(k.leases), asked.Sub(l.asked)))
	if l.index < 0 || l.state == lost {
		visibility = 0 // untracked or lost while it waited for a renewer
	}
	f := &renewalRequest{slowAt: asked.Add(slowRenewal), replaced: !renewer}
	if renewer {
		k.trackRequest(f)
	}
	old, text, progress := l.newest, l.text, l.progress
	k.mu.Unlock()

	fresh := old
	if visibility > 0 {
		if progress != nil && renewer { // the text of a save has it already
			text = progress(text)
		}
		parent := k.saves
		if renewer {
			parent = k.renewals
		}
		ctx, cancel := context.WithTimeout(parent, min(max(visibility-safetyMargin, safetyMargin), maxRenewalTimeout))
		fresh, err = k.queue.Update(ctx, old, text, visibility)
		cancel()
	}
	k.finishRenewal(l, asked, visibility, fresh, err, f)
	if visibility <= 0 {
		err = ErrLeaseExpired
	}
	return !f.replaced, err // no longer written by others
}

// trackRequest makes the manager wake up when the renewal becomes slow. Requires mu.
func (k *leaseManager) trackRequest(f *renewalRequest) {
	k.inFlight = append(k.inFlight, f)
	if k.alarm.IsZero() || f.slowAt.Before(k.alarm) {
		k.alarm = f.slowAt
		k.signal()
	}
}

// finishRenewal applies the outcome of a renewal. A visibility of zero means that none was
// sent.
func (k *leaseManager) finishRenewal(l *lease, asked time.Time, visibility time.Duration, fresh queue.Lease, err error, f *renewalRequest) {
	now := time.Now()
	k.mu.Lock()
	close(l.running)
	l.running = nil
	f.done = true
	if visibility > 0 {
		k.recordLatency(now.Sub(asked))
	}
	kept := l.index >= 0 // the handler still runs
	switch {
	case visibility <= 0:
		l.renewAt = time.Time{} // not useful, now or later
	case err == nil:
		l.newest = fresh
		k.renewed++
		k.extend(l, asked, visibility)
		l.state = held // even if it had expired by our clock
	case leaseGone(err):
		if kept && l.state == held {
			k.cancelHandler(l, now, ErrLeaseLost)
		}
		l.state = lost
		l.expiry, l.renewAt = time.Time{}, time.Time{}
	case l.stuck:
		l.renewAt = time.Time{}
	case l.state == held:
		// The outcome is unknown, or the service was busy: try again with the old receipt, more
		// often as the end comes near, until the expiry cancels the handler.
		l.renewAt = now.Add(max(l.expiry.Sub(now)/4, 250*time.Millisecond))
	default:
		// Expired by our clock. While its handler has not returned the lease may still be
		// regained.
		l.renewAt = now.Add(max(visibility/8, time.Second))
	}
	k.reschedule(l)
	k.mu.Unlock()
	k.signal()
	if visibility > 0 {
		l.delivery.renewed(visibility, err)
	}
}

// recordLatency records how long a renewal took. A slow one counts at once and decays as others
// are faster. Requires mu.
func (k *leaseManager) recordLatency(d time.Duration) {
	if d >= k.latency {
		k.latency = d
		return
	}
	k.latency -= (k.latency - d) / 8
}
