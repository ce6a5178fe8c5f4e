package dispatcher

import (
	"container/heap"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// safetyMargin is subtracted from the end of a lease: the service counts whole seconds, and a
// request that is still in flight when the lease ends comes too late.
const safetyMargin = time.Second

// lease is the lease of one message. The worker of its delivery owns it, except while its handler
// runs: from track to untrack it is the lease manager's, and all fields but the first group are
// guarded by leaseManager.mu.
type lease struct {
	id         queue.ID
	asked      time.Time               // just before the request for it
	visibility time.Duration           // that the request asked for
	messageEnd time.Time               // when the message expires; zero for never
	cancel     context.CancelCauseFunc // ends the handler's context; written while Dispatcher.mu is held, too
	delivery   *delivery               // hears of renewals and of the end of the lease, without the manager's lock; nil if the lease was never tracked

	text     string                   // resent with every renewal, because an update without a text clears it
	progress func(text string) string // adds the progress of a group to the text; may be nil
	newest   queue.Lease              // with the newest receipt
	expiry   time.Time                // until when it is certainly ours, by our monotonic clock; zero when it is not
	renewAt  time.Time                // when to renew next; zero for never
	deadline time.Time                // when the handler's time-out passes; zero for never
	stuckAt  time.Time                // when a cancelled handler counts as stuck; zero for never
	renewals int32                    // times it was extended
	index    int32                    // in the heap; -1 when not in it
	stuck    bool                     // its handler was reported as stuck: it is renewed no longer
	state    leaseState
	running  chan struct{} // closed when the renewal in flight has returned; nil without such a renewal
	saves    int32         // calls of Save that wait for the renewal in flight
	dueAt    time.Duration // when it is due next: the earliest of the above, since the manager was created
}

type leaseState uint8

const (
	held    leaseState = iota
	expired            // by our clock it ended; the receipt may still be the newest
	lost               // the service said so
)

// left returns how much is left of a lease that is not tracked.
func (l *lease) left() time.Duration { return time.Until(l.expiry) }

// due returns when the manager must act on the lease next, or zero for never. A renewal that is due
// leaves the turn to a save that waits, because the save renews the lease too.
func (l *lease) due() time.Time {
	due := earlier(earlier(l.expiry, l.deadline), l.stuckAt)
	if l.running == nil && l.saves == 0 {
		due = earlier(due, l.renewAt)
	}
	return due
}

// neverDue is the dueAt of a lease with nothing to do until its handler returns.
const neverDue = time.Duration(math.MaxInt64)

// earlier returns the earlier of two times, where zero means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func past(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

// leaseGone reports whether the error means that the message will never be ours again: the
// lease is lost, or the queue is gone.
func leaseGone(err error) bool {
	return errors.Is(err, queue.ErrLeaseLost) ||
		errors.Is(err, queue.ErrQueueMissing) ||
		errors.Is(err, queue.ErrQueueBeingDeleted)
}

// leaseHeap orders leases by when they are due.
type leaseHeap []*lease

func (h leaseHeap) Len() int { return len(h) }

func (h leaseHeap) Less(i, j int) bool { return h[i].dueAt < h[j].dueAt }

func (h leaseHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = int32(i), int32(j)
}

func (h *leaseHeap) Push(x any) {
	l := x.(*lease)
	l.index = int32(len(*h))
	*h = append(*h, l)
}

func (h *leaseHeap) Pop() any {
	old := *h
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	l.index = -1
	return l
}

// leaseManager renews the leases of running handlers, and cancels a handler when its lease or
// time-out has ended. It needs one heap and one timer for any number of messages.
type leaseManager struct {
	queue      queue.Queue
	visibility func(count int, ran time.Duration) time.Duration // the visibility to ask for with this many leases, for a handler that has run this long
	stuckAfter time.Duration                                    // negative for never

	requests *period // of all renewals: it ends when the dispatcher is closed

	wake    chan struct{} // the heap's top has changed
	stop    chan struct{}
	workers sync.WaitGroup // the manager's own goroutine and the renewers

	created time.Time

	mu       sync.Mutex
	leases   leaseHeap         // guarded by mu
	alarm    time.Time         // when run wakes up without a signal; zero for never; guarded by mu
	waiting  []*lease          // due for renewal, waiting for a renewer; guarded by mu
	inFlight []*renewalRequest // renewals in flight, oldest first, and some that have returned; guarded by mu
	renewers int               // renewers alive, without the ones with a slow renewal; guarded by mu
	renewed  int64             // renewals that succeeded; guarded by mu

	latency time.Duration // recent duration of renewals, dominated by slow ones; guarded by mu
}

func newLeaseManager(r *requests, q queue.Queue, visibility func(held int, ran time.Duration) time.Duration, stuckAfter time.Duration) *leaseManager {
	k := &leaseManager{
		queue: q, visibility: visibility, stuckAfter: stuckAfter, created: time.Now(), requests: r.current.Load(),
		wake: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	k.workers.Go(k.run)
	return k
}

func (k *leaseManager) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.leases)
}

// close stops the manager and waits for its goroutines. Leases that are still tracked are
// renewed no longer.
func (k *leaseManager) close() {
	close(k.stop)
	k.workers.Wait()
}

// track begins to renew a lease.
func (k *leaseManager) track(l *lease) {
	k.mu.Lock()
	k.extend(l, l.asked, l.visibility)
	next := l.due()
	l.dueAt = next.Sub(k.created)
	heap.Push(&k.leases, l)
	// untrack leaves the alarm as it is. With short handlers resetting it would happen for
	// nearly every message, and one wake-up too many costs less.
	sooner := k.alarm.IsZero() || next.Before(k.alarm)
	k.alarm = earlier(k.alarm, next)
	k.mu.Unlock()
	if sooner {
		k.signal()
	}
}

// setDeadline sets when the time-out of a handler passes after its lease was tracked; zero for
// never.
func (k *leaseManager) setDeadline(l *lease, deadline time.Time) {
	k.mu.Lock()
	l.deadline = deadline
	k.reschedule(l)
	k.mu.Unlock()
	k.signal()
}

// setProgress makes renewals record the progress of a group.
func (k *leaseManager) setProgress(l *lease, progress func(text string) string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.progress = progress
}

// itemOverdue notes that the time-out of an item has passed while its handler runs. If it does not
// return it is reported as stuck.
func (k *leaseManager) itemOverdue(l *lease, since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := l.delivery.running.group
	g.overdue = append(g.overdue, since)
	if k.stuckAfter >= 0 && l.stuckAt.IsZero() && !l.stuck {
		l.stuckAt = since.Add(k.stuckAfter)
	}
	k.reschedule(l)
	k.signal()
}

// itemReturned notes that the handler of an item has returned that was overdue since then. If it
// was reported as stuck, the lease is renewed again, for the other items.
func (k *leaseManager) itemReturned(l *lease, since time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := l.delivery.running.group
	if i := slices.IndexFunc(g.overdue, since.Equal); i >= 0 {
		g.overdue = slices.Delete(g.overdue, i, i+1)
	}
	if k.stuckAfter < 0 || l.delivery.running.ctx.Err() != nil {
		return
	}
	now := time.Now()
	var stuckAt time.Time // of the item that is overdue for longest
	if len(g.overdue) > 0 {
		stuckAt = slices.MinFunc(g.overdue, time.Time.Compare).Add(k.stuckAfter)
	}
	switch {
	case !l.stuck:
		l.stuckAt = stuckAt
	case !past(stuckAt, now): // else another one is stuck
		l.stuck, l.stuckAt, l.renewAt = false, stuckAt, now
	}
	k.reschedule(l)
	k.signal()
}

// extend sets the times after a request, sent at asked, that hid the message for the visibility.
// The service began to count after that time, even if the clocks differ. Requires mu.
func (k *leaseManager) extend(l *lease, asked time.Time, visibility time.Duration) {
	l.expiry = asked.Add(visibility - safetyMargin)
	if !l.messageEnd.IsZero() && l.messageEnd.Before(l.expiry) {
		l.expiry = l.messageEnd // a dequeue may hide a message for longer than it lives
	}
	l.renewals++
	l.renewAt = time.Time{}
	if !l.stuck {
		l.renewAt = asked.Add(k.renewAfter(l, visibility))
	}
}

// renewAfter returns how long after its request a lease is renewed. The jitter only adds, so
// that a handler of half the visibility is never renewed; it is up to a quarter of that half,
// so that leases that began together are not renewed in one burst. Where renewals are slow the
// wait is shorter. Requires mu.
func (k *leaseManager) renewAfter(l *lease, visibility time.Duration) time.Duration {
	half := visibility / 2
	wait := half + time.Duration(waiting.Jitter(string(l.id), int(l.renewals))*float64(half)/4)
	return min(wait, max(visibility-safetyMargin-k.margin(), visibility/4))
}

// margin returns how long before the end of a lease, or of a message's life, a renewal must be
// sent, judging by recent renewals. Requires mu.
func (k *leaseManager) margin() time.Duration { return k.latency * 3 / 2 }

// untrack stops renewing a lease after its handler has returned. It waits for a renewal in flight
// and never cancels it, because settling needs that renewal's receipt.
func (k *leaseManager) untrack(l *lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l.index >= 0 {
		heap.Remove(&k.leases, int(l.index))
	}
	for l.running != nil {
		running := l.running
		k.mu.Unlock()
		<-running
		k.mu.Lock()
	}
}

// run is the manager's goroutine.
func (k *leaseManager) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		next, some := k.runDue(time.Now())
		if some {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-k.wake:
		case <-k.stop:
			return
		}
	}
}

func (k *leaseManager) runDue(now time.Time) (next time.Time, some bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	slow := k.replaceSlow(now)
	for len(k.leases) > 0 && k.leases[0].dueAt != neverDue {
		l := k.leases[0]
		if at := k.created.Add(l.dueAt); at.After(now) {
			k.alarm = earlier(at, slow)
			return k.alarm, true
		}
		switch {
		case past(l.deadline, now):
			// The lease is still renewed, so that the handler's result can be recorded.
			l.deadline = time.Time{}
			k.cancelHandler(l, now, ErrTimeout)
		case past(l.expiry, now):
			// Renewals are still tried: perhaps no other worker has the message yet.
			l.state = expired
			l.expiry = time.Time{}
			k.cancelHandler(l, now, ErrLeaseExpired)
		case past(l.stuckAt, now):
			l.stuckAt, l.renewAt, l.stuck = time.Time{}, time.Time{}, true
			k.workers.Go(l.delivery.stuck) // collects stacks, so not under the lock
		default:
			k.queueRenewal(l, now)
		}
		k.reschedule(l)
	}
	if !k.alarm.After(now) {
		k.alarm = time.Time{}
	}
	k.alarm = earlier(k.alarm, slow)
	return k.alarm, !k.alarm.IsZero()
}

// cancelHandler cancels the handler and begins to measure how long it continues. Requires mu.
func (k *leaseManager) cancelHandler(l *lease, now time.Time, cause error) {
	l.cancel(cause)
	if k.stuckAfter >= 0 && l.stuckAt.IsZero() && !l.stuck {
		l.stuckAt = now.Add(k.stuckAfter)
	}
	if !errors.Is(cause, ErrTimeout) {
		k.workers.Go(func() { l.delivery.lost(cause) })
	}
}

// reschedule moves the lease to its place in the heap. Requires mu.
func (k *leaseManager) reschedule(l *lease) {
	if l.index < 0 {
		return
	}
	l.dueAt = neverDue
	if due := l.due(); !due.IsZero() {
		l.dueAt = due.Sub(k.created)
	}
	heap.Fix(&k.leases, int(l.index))
}

func (k *leaseManager) signal() {
	waiting.Signal(k.wake, struct{}{})
}

// Renewals are sent by goroutines, the renewers. A quarter as many as there are leases may be in
// flight at the same time, or minRenewers if that is more. Slow ones do not count, so that hanging
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

// worthRenewing returns when a renewal would move the expiry: now, or later if the visibility has
// become shorter than the rest of the lease, or never (zero) if the message expires first. If the
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

// renew is a renewer: it renews leases as long as any wait, or until it was slow and another
// renewer has replaced it.
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
		counts, _ = k.send(l, request.CauseRenew) // the delivery is told of the error
	}
}

// replaceSlow replaces renewers after their renewals have become slow, and returns when the next
// one will be, or zero. Requires mu.
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

// send sends one renewal, if it is still useful, and reports whether its renewer still counts. The
// caller is a renewer if the cause is request.CauseRenew. l.running must be set.
func (k *leaseManager) send(l *lease, why request.Cause) (counts bool, err error) {
	renewer := why == request.CauseRenew
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
		ctx, cancel := context.WithTimeout(k.requests.by[why], min(max(visibility-safetyMargin, safetyMargin), maxRenewalTimeout))
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

// finishRenewal applies the outcome of a renewal. A visibility of zero means that no request was
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
		if err == nil {
			l.delivery.extendJob(time.Until(asked.Add(visibility - safetyMargin)))
		}
		l.delivery.renewed(visibility, err)
	}
}

// recordLatency records how long a renewal took. A slow one counts immediately and decays as others
// are faster. Requires mu.
func (k *leaseManager) recordLatency(d time.Duration) {
	if d >= k.latency {
		k.latency = d
		return
	}
	k.latency -= (k.latency - d) / 8
}
