package dispatcher

import (
	"context"
	"errors"
	"time"

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

func past(t, now time.Time) bool { return !t.IsZero() && !t.After(now) }

// gone tells that the message is not ours any more, and never will be: the lease
// is lost, or the queue has gone with it.
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
