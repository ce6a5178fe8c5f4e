package dispatcher

import (
	"container/heap"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/jitter"
	"github.com/millrace/millrace/queue"
)

// safety is what is taken off a lease's end: the service counts in whole seconds,
// and a request that is on its way when the lease ends comes too late (invariant
// 4).
const safetyMargin = time.Second

// lease is one message under its handler, as the keeper sees it. All fields but
// the first group are guarded by keeper.mu.
type lease struct {
	id      queue.ID
	text    string                  // resent with every renewal: the service would keep an empty one
	cancel  context.CancelCauseFunc // ends the handler's context
	watcher watcher                 // is told what happens to the lease

	newest     queue.Lease // with the newest receipt
	asked      time.Time   // just before the request for it; does not change while it is kept
	expiry     time.Time   // until when it is surely ours, by our monotonic clock; zero when it is not
	renewAt    time.Time   // when to renew next; zero for never
	deadline   time.Time   // when the handler's time is up; zero for never
	stuckAt    time.Time   // when a cancelled handler counts as stuck; zero for never
	messageEnd time.Time   // when the message's own life ends; zero for never
	renewals   int32       // how often it was extended
	index      int32       // in the heap; -1 when not in it
	stuck      bool        // its handler was reported as stuck: it is extended no more
	state      leaseState
	running    chan struct{} // closed when the renewal on the wire has returned; nil when none is
	dueAt      time.Duration // since the keeper's birth, when it must look at it next: the earliest of the above
}

// watcher is told what happens to a lease, without the keeper's lock.
type watcher interface {
	renewed(visibility time.Duration, err error)
	lost(cause error)
	stuck()
}

type leaseState uint8

const (
	held    leaseState = iota
	expired            // our clock says it ended; the receipt may still be the newest
	lost               // the service said so
)

// due is when the keeper must look at the lease next, or zero for never.
func (l *lease) due() time.Time {
	due := earlier(earlier(l.expiry, l.deadline), l.stuckAt)
	if l.running == nil {
		due = earlier(due, l.renewAt)
	}
	return due
}

// earlier returns the earlier of two instants, of which zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// keeper renews the leases of running handlers, cancels handlers whose lease or
// time is up, and is the only owner of timers for both: one heap and one timer,
// whatever the number of messages.
type leaseManager struct {
	queue      queue.Queue
	visibility func(count int, ran time.Duration) time.Duration // what to ask for with so many leases, for a handler that has run for so long
	stuckAfter time.Duration                                    // negative for never

	ctx     context.Context // of renewal requests; ends only when the dispatcher is closed
	wake    chan struct{}   // the heap's top has changed
	stop    chan struct{}
	workers sync.WaitGroup // the keeper's own goroutine and the renewers

	created time.Time

	mu       sync.Mutex
	leases   leaseHeap         // guarded by mu
	alarm    time.Time         // when the keeper's goroutine looks again by itself; zero for never; guarded by mu
	waiting  []*lease          // due for renewal, no renewer yet; guarded by mu
	inFlight []*renewalRequest // renewals on the wire, oldest first, and some that are not any more; guarded by mu
	renewers int               // renewers alive, but for those with a slow renewal; guarded by mu
	renewed  int64             // renewals that succeeded; guarded by mu

	latency time.Duration // what renewals take of late, the slow ones above all; guarded by mu
}

func newLeaseManager(ctx context.Context, q queue.Queue, visibility func(held int, ran time.Duration) time.Duration, stuckAfter time.Duration) *leaseManager {
	k := &leaseManager{
		queue: q, visibility: visibility, stuckAfter: stuckAfter, ctx: ctx, created: time.Now(),
		wake: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	k.workers.Go(k.run)
	return k
}

// held returns how many leases are kept.
func (k *leaseManager) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.leases)
}

// close stops the keeper and waits for its goroutines. Leases still in it are
// renewed no more.
func (k *leaseManager) close() {
	close(k.stop)
	k.workers.Wait()
}

// hold begins to keep a lease that was asked for with the visibility.
func (k *leaseManager) track(l *lease, visibility time.Duration) {
	k.mu.Lock()
	k.extend(l, l.asked, visibility)
	next := l.due()
	l.dueAt = next.Sub(k.created)
	heap.Push(&k.leases, l)
	// A lease that is released leaves the alarm as it is: with short handlers it would be
	// set anew for nearly every message, and one look in vain costs less.
	sooner := k.alarm.IsZero() || next.Before(k.alarm)
	k.alarm = earlier(k.alarm, next)
	k.mu.Unlock()
	if sooner {
		k.signal()
	}
}

// extend sets the times after a request, sent at the given instant, that hid the
// message for the visibility. The instant before the request is a lower bound for
// when the service began to count, whatever the clocks say. Requires mu.
func (k *leaseManager) extend(l *lease, asked time.Time, visibility time.Duration) {
	l.expiry = asked.Add(visibility - safetyMargin)
	if !l.messageEnd.IsZero() && l.messageEnd.Before(l.expiry) {
		l.expiry = l.messageEnd // a dequeue may hide a message beyond its life
	}
	l.renewals++
	l.renewAt = time.Time{}
	if !l.stuck {
		l.renewAt = asked.Add(k.renewAfter(l, visibility))
	}
}

// wait is how long after the request for a lease it is renewed. Jitter only upwards, so
// that a handler of half the visibility is never renewed; up to a quarter, so that those
// that began together are not renewed in one burst. Where renewals take so long that the
// answer would come too late, it is sooner. Requires mu.
func (k *leaseManager) renewAfter(l *lease, visibility time.Duration) time.Duration {
	half := visibility / 2
	wait := half + time.Duration(jitter.Of(string(l.id), int(l.renewals))*float64(half)/4)
	return min(wait, max(visibility-safetyMargin-k.margin(), visibility/4))
}

// margin is how long before the end of a lease, or of a message's life, a renewal must be
// sent to be in time, going by what renewals take. Requires mu.
func (k *leaseManager) margin() time.Duration { return k.latency * 3 / 2 }

// release ends the keeping of a lease: its handler has returned. It waits for a
// renewal on the wire, never cancels it, because that renewal's receipt is the one
// that settles.
func (k *leaseManager) untrack(l *lease) (queue.Lease, leaseState) {
	k.mu.Lock()
	k.remove(l)
	for l.running != nil {
		running := l.running
		k.mu.Unlock()
		<-running
		k.mu.Lock()
	}
	defer k.mu.Unlock()
	return l.newest, l.state
}

// remove takes the lease out of the heap, so that nothing happens to it any more.
// Requires mu.
func (k *leaseManager) remove(l *lease) {
	if l.index >= 0 {
		heap.Remove(&k.leases, int(l.index))
	}
}

// watch is the keeper's goroutine.
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

// attend does what is due by now, and tells when the next thing is.
func (k *leaseManager) runDue(now time.Time) (next time.Time, some bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	slow := k.replaceSlow(now)
	for len(k.leases) > 0 {
		l := k.leases[0]
		if at := k.created.Add(l.dueAt); at.After(now) {
			k.alarm = earlier(at, slow)
			return k.alarm, true
		}
		switch {
		case past(l.deadline, now):
			// The lease goes on, so that what the handler still says can be recorded.
			l.deadline = time.Time{}
			k.cancelHandler(l, now, ErrTimeout)
		case past(l.expiry, now):
			// It is still renewed: nobody else may have the message yet.
			l.state = expired
			l.expiry = time.Time{}
			k.cancelHandler(l, now, ErrLeaseExpired)
		case past(l.stuckAt, now):
			l.stuckAt, l.renewAt, l.stuck = time.Time{}, time.Time{}, true
			k.workers.Go(l.watcher.stuck) // it dumps stacks: not under the lock
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

func past(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

// end cancels the handler, and begins to count how long it goes on. Requires mu.
func (k *leaseManager) cancelHandler(l *lease, now time.Time, cause error) {
	l.cancel(cause)
	if k.stuckAfter >= 0 && l.stuckAt.IsZero() && !l.stuck {
		l.stuckAt = now.Add(k.stuckAfter)
	}
	if !errors.Is(cause, ErrTimeout) {
		k.workers.Go(func() { l.watcher.lost(cause) })
	}
}

// fix moves the lease to where it belongs in the heap, or out of it when nothing is
// left to do. Requires mu.
func (k *leaseManager) reschedule(l *lease) {
	if l.index < 0 {
		return
	}
	due := l.due()
	if due.IsZero() {
		heap.Remove(&k.leases, int(l.index))
		return
	}
	l.dueAt = due.Sub(k.created)
	heap.Fix(&k.leases, int(l.index))
}

// gone tells that the message is not ours any more, and never will be: the lease
// is lost, or the queue has gone with it.
func leaseGone(err error) bool {
	return errors.Is(err, queue.ErrLeaseLost) ||
		errors.Is(err, queue.ErrQueueMissing) ||
		errors.Is(err, queue.ErrQueueBeingDeleted)
}

func (k *leaseManager) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// leaseHeap orders leases by when they are due.
type leaseHeap []*lease

func (h leaseHeap) Len() int           { return len(h) }
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
