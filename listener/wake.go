package listener

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// wake is where all reasons to poll before the timer meet: messages that we gave back
// ourselves fall due, the settings have changed. One place in the channel is enough: any
// number of reasons is worth one poll, and whoever finds work polls on at once.
type wake struct {
	now chan struct{}

	mu    sync.Mutex
	dues  dueHeap       // when messages that we gave back become visible; guarded by mu
	fresh chan struct{} // the earliest of them has changed
}

// mostDues bounds how many releases are remembered. They are hints: what is forgotten is
// found by the next poll.
const mostDues = 1024

func newWake() *wake {
	return &wake{now: make(chan struct{}, 1), fresh: make(chan struct{}, 1)}
}

// signal wakes one loop that sleeps, or the next one that is about to.
func (w *wake) signal() { offer(w.now) }

// at asks for a signal when a message that was given back becomes visible.
func (w *wake) at(due time.Time) {
	w.mu.Lock()
	first := false
	if len(w.dues) < mostDues {
		heap.Push(&w.dues, due)
		first = w.dues[0].Equal(due)
	}
	w.mu.Unlock()
	if first {
		offer(w.fresh)
	}
}

// watch signals when releases fall due, until ctx ends. The session owns it.
func (w *wake) watch(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if wait, some := w.next(time.Now()); some {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
			w.signal()
		case <-w.fresh:
		case <-ctx.Done():
			return
		}
	}
}

// next drops what has fallen due and returns how long it is until the next.
func (w *wake) next(now time.Time) (wait time.Duration, some bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.dues) > 0 && !w.dues[0].After(now) {
		heap.Pop(&w.dues)
	}
	if len(w.dues) == 0 {
		return 0, false
	}
	return w.dues[0].Sub(now), true
}

func offer(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

type dueHeap []time.Time

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].Before(h[j]) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(time.Time)) }
func (h *dueHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
