package dispatcher

import (
	"container/heap"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// safetyMargin is subtracted from the end of a lease: the service counts whole seconds, and a
// request that is still in flight when the lease ends comes too late.
const safetyMargin = time.Second

// lease is the lease of one message. The worker of its delivery owns it, except while its handler
// runs: from track to untrack it is the lease manager's, and all fields but the first group are guarded
// by leaseManager.mu.
type lease struct {
	id         queue.ID
	asked      time.Time               // just before the request for it
	visibility time.Duration           // that the request asked for
	messageEnd time.Time               // when the message expires; zero for never
	cancel     context.CancelCauseFunc // ends the handler's context; written while Dispatcher.mu is held, too
	delivery   *delivery               // told what happens to the lease, without the manager's lock; nil if it was never tracked

	text     string                   // resent with every renewal, because an update without a text clears it
	progress func(text string) string // adds to the text what has been done of a group; nil for none
	newest   queue.Lease              // with the newest receipt
	expiry   time.Time                // until when it is certainly ours, by our monotonic clock; zero when it is not
	renewAt  time.Time                // when to renew next; zero for never
	deadline time.Time                // when the handler's time-out passes; zero for never
	stuckAt  time.Time                // when a cancelled handler counts as stuck; zero for never
	renewals int32                    // times it was extended
	index    int32                    // in the heap; -1 when not in it
	stuck    bool                     // its handler was reported as stuck: it is renewed no longer
	state    leaseState
	running  chan struct{} // closed when the renewal in flight has returned; nil if there is none
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

// neverDue is the dueAt of a lease for which nothing is left to do until its handler returns.
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

// leaseManager renews the leases of running handlers, and cancels handlers whose lease or
// time-out has ended. It needs one heap and one timer, whatever the number of messages.
type leaseManager struct {
	queue      queue.Queue
	visibility func(count int, ran time.Duration) time.Duration // what to ask for with this many leases, for a handler that has run this long
	stuckAfter time.Duration                                    // negative for never

	renewals, saves context.Context // of these requests; they end when the dispatcher is closed

	wake    chan struct{} // the heap's top has changed
	stop    chan struct{}
	workers sync.WaitGroup // the manager's own goroutine and the renewers

	created time.Time

	mu       sync.Mutex
	leases   leaseHeap         // guarded by mu
	alarm    time.Time         // when run wakes up by itself; zero for never; guarded by mu
	waiting  []*lease          // due for renewal, waiting for a renewer; guarded by mu
	inFlight []*renewalRequest // renewals in flight, oldest first, and some that have returned; guarded by mu
	renewers int               // renewers alive, without those that have a slow renewal; guarded by mu
	renewed  int64             // renewals that succeeded; guarded by mu

	latency time.Duration // recent duration of renewals, dominated by slow ones; guarded by mu
}

func newLeaseManager(r *requests, q queue.Queue, visibility func(held int, ran time.Duration) time.Duration, stuckAfter time.Duration) *leaseManager {
	k := &leaseManager{
		queue: q, visibility: visibility, stuckAfter: stuckAfter, created: time.Now(),
		renewals: r.because(queue.CauseRenew), saves: r.because(queue.CauseSave),
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

// setDeadline sets when the time-out of a handler passes whose lease is tracked already; zero for
// never.
func (k *leaseManager) setDeadline(l *lease, deadline time.Time) {
	k.mu.Lock()
	l.deadline = deadline
	k.reschedule(l)
	k.mu.Unlock()
	k.signal()
}

// setProgress makes renewals say what has been done of a group.
func (k *leaseManager) setProgress(l *lease, progress func(text string) string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	l.progress = progress
}

// itemOverdue notes that the time-out of an item has passed whose handler runs. If it does not
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

// extend sets the times after a request, sent at asked, that hid the message for the
// visibility. The time before the request is a lower bound for when the service began to count,
// whatever the clocks say. Requires mu.
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

// untrack stops renewing a lease whose handler has returned. It waits for a renewal in flight
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
