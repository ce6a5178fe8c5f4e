package dispatcher

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/millrace/millrace/queue"
)

// safetyMargin is subtracted from the end of a lease: the service counts whole seconds, and a
// request that is still in flight when the lease ends comes too late.
const safetyMargin = time.Second

// lease is the lease of one message while its handler runs. All fields but the first group are
// guarded by leaseManager.mu.
type lease struct {
	id       queue.ID
	text     string                  // resent with every renewal, because an update without a text clears it
	cancel   context.CancelCauseFunc // ends the handler's context
	delivery *delivery               // told what happens to the lease, without the manager's lock

	progress   func(text string) string // adds to the text what has been done of a group; nil for none
	newest     queue.Lease              // with the newest receipt
	asked      time.Time                // just before the request for it; constant while it is tracked
	expiry     time.Time                // until when it is certainly ours, by our monotonic clock; zero when it is not
	renewAt    time.Time                // when to renew next; zero for never
	deadline   time.Time                // when the handler's time-out passes; zero for never
	stuckAt    time.Time                // when a cancelled handler counts as stuck; zero for never
	messageEnd time.Time                // when the message expires; zero for never
	renewals   int32                    // times it was extended
	index      int32                    // in the heap; -1 when not in it
	stuck      bool                     // its handler was reported as stuck: it is renewed no longer
	state      leaseState
	running    chan struct{} // closed when the renewal in flight has returned; nil if there is none
	saves      int32         // calls of Save that wait for the renewal in flight
	dueAt      time.Duration // when it is due next: the earliest of the above, since the manager was created
}

type leaseState uint8

const (
	held    leaseState = iota
	expired            // by our clock it ended; the receipt may still be the newest
	lost               // the service said so
)

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
