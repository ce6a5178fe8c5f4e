package dispatcher

import (
	"context"
	"time"

	"github.com/millrace/millrace/queue"
)

// Renewals are sent by goroutines, the renewers. A quarter as many as there are leases may
// be on the wire at once, or leastRenewers if that is more. A slow one does not count, so
// that requests that hang never keep other leases from being renewed.
const (
	minRenewers = 64
	slowRenewal = time.Second
)

// mostPatience bounds how long the answer to a renewal is waited for. It is less for a short
// lease: an answer that comes after the lease would have ended is still worth having, but
// not one that comes after the new one would have.
const maxRenewalTimeout = 20 * time.Second

// cleanUp is how long a handler may take to return after its time-out before its lease is
// renewed, if the lease lasts that long.
const cleanUp = time.Second

// flight is a renewal on the wire that a renewer sent.
type renewalRequest struct {
	slowAt   time.Time // when it counts as slow
	done     bool      // it has returned; guarded by keeper.mu
	replaced bool      // it was slow, and its renewer counts no more; guarded by keeper.mu
}

// queueRenewal hands the lease to a renewer, if that is worth it now. Requires mu.
func (k *leaseManager) queueRenewal(l *lease, now time.Time) {
	if l.renewAt = k.worthRenewing(l, now); l.renewAt.After(now) || l.renewAt.IsZero() {
		return
	}
	l.running = make(chan struct{})
	k.waiting = append(k.waiting, l)
	k.startRenewer()
}

// hire starts a renewer if one is needed and may be. Requires mu.
func (k *leaseManager) startRenewer() {
	if len(k.waiting) > 0 && k.renewers < max(minRenewers, len(k.leases)/4) {
		k.renewers++
		k.workers.Go(k.renew)
	}
}

// worthRenewing returns when a renewal moves the expiry: now, or later if visibility has
// become shorter than what is left, or never (zero) if the end of the message's own life
// comes first. A handler whose time is up well before the lease ends is waited for: most
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

// extension is how much of the visibility a renewal asks for: the service refuses one that
// passes the end of the message's life when it arrives. Requires mu.
func (k *leaseManager) extension(l *lease, now time.Time, visibility time.Duration) time.Duration {
	if l.messageEnd.IsZero() {
		return visibility
	}
	return min(visibility, (l.messageEnd.Sub(now) - k.margin()).Truncate(time.Second))
}

// renew is a renewer: it renews what waits and ends when nothing does, or when it was slow
// and another has taken its place.
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
		counts, _ = k.send(l, true) // an error is told to the lease's watcher
	}
}

// replaceSlow lets others take the place of renewers whose renewals are slow by now, and
// returns when the next one will be, or zero. Requires mu.
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

// renewNow sends one renewal, if it is still worth anything, for a caller that is no
// renewer. Running must be set.
func (k *leaseManager) renewNow(l *lease) error {
	_, err := k.send(l, false)
	return err
}

// send sends one renewal, if it is still worth anything, and tells whether the renewer that
// sent it still counts.
func (k *leaseManager) send(l *lease, renewer bool) (counts bool, err error) {
	k.mu.Lock()
	asked := time.Now()
	visibility := k.extension(l, asked, k.visibility(len(k.leases), asked.Sub(l.asked)))
	if l.index < 0 || l.state == lost {
		visibility = 0 // released or lost while it waited for a renewer
	}
	f := &renewalRequest{slowAt: asked.Add(slowRenewal), replaced: !renewer}
	if renewer {
		k.trackRequest(f)
	}
	old, text := l.newest, l.text
	k.mu.Unlock()

	fresh := old
	if visibility > 0 {
		ctx, cancel := context.WithTimeout(k.ctx, min(max(visibility-safetyMargin, safetyMargin), maxRenewalTimeout))
		fresh, err = k.queue.Update(ctx, old, text, visibility)
		cancel()
	}
	k.finishRenewal(l, asked, visibility, fresh, err, f)
	if visibility <= 0 {
		err = ErrLeaseExpired
	}
	return !f.replaced, err // nobody writes it any more
}

// watchFlight sees to it that the keeper notices when the renewal is slow. Requires mu.
func (k *leaseManager) trackRequest(f *renewalRequest) {
	k.inFlight = append(k.inFlight, f)
	if k.alarm.IsZero() || f.slowAt.Before(k.alarm) {
		k.alarm = f.slowAt
		k.signal()
	}
}

// renewedOne notes the outcome of a renewal. Without a visibility there was none.
func (k *leaseManager) finishRenewal(l *lease, asked time.Time, visibility time.Duration, fresh queue.Lease, err error, f *renewalRequest) {
	now := time.Now()
	k.mu.Lock()
	close(l.running)
	l.running = nil
	f.done = true
	if visibility > 0 {
		k.recordLatency(now.Sub(asked))
	}
	kept := l.index >= 0 // its handler still runs
	switch {
	case visibility <= 0:
		l.renewAt = time.Time{} // not worth it, and it will not be
	case err == nil:
		l.newest = fresh
		k.renewed++
		k.extend(l, asked, visibility)
		l.state = held // also if our clock had given it up meanwhile
	case leaseGone(err):
		if kept && l.state == held {
			k.cancelHandler(l, now, ErrLeaseLost)
		}
		l.state = lost
		l.expiry, l.renewAt = time.Time{}, time.Time{}
	case l.stuck:
		l.renewAt = time.Time{}
	case l.state == held:
		// Unknown or refused for now: again with the old receipt, ever sooner as
		// the end comes near, until the expiry cancels the handler.
		l.renewAt = now.Add(max(l.expiry.Sub(now)/4, 250*time.Millisecond))
	default:
		// Our clock has given it up. As long as its handler has not returned it may
		// still be had.
		l.renewAt = now.Add(max(visibility/8, time.Second))
	}
	k.reschedule(l)
	k.mu.Unlock()
	k.signal()
	if visibility > 0 {
		l.watcher.renewed(visibility, err)
	}
}

// took notes how long a renewal took. One that is slow counts at once, and is forgotten
// when others are not. Requires mu.
func (k *leaseManager) recordLatency(d time.Duration) {
	if d >= k.latency {
		k.latency = d
		return
	}
	k.latency -= (k.latency - d) / 8
}
