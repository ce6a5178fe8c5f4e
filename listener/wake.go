package listener

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

// wake combines the reasons to poll before the timer: a message that was given back becomes
// visible, the settings have changed. A buffer of one is enough, because any number of reasons
// is worth one poll, and a loop that finds work polls again at once.
//
// A loop that takes a signal must poll. If it ends instead it passes the signal on.
type wake struct {
	now  chan struct{}
	fire func() // called when something falls due: signal, or what the session does instead

	epoch time.Time // start of second 0

	mu      sync.Mutex
	seconds secondHeap          // seconds in which messages become visible; guarded by mu
	latest  map[int64]time.Time // latest time in each of these seconds; guarded by mu
	fresh   chan struct{}       // signals a new earliest second
}

func newWake() *wake {
	w := &wake{
		now: make(chan struct{}, 1), fresh: make(chan struct{}, 1),
		epoch: time.Now(), latest: make(map[int64]time.Time),
	}
	w.fire = w.signal
	return w
}

// signal wakes the loop that has slept longest, or the next one to sleep.
func (w *wake) signal() { waiting.Signal(w.now, struct{}{}) }

func (w *wake) drain() {
	select {
	case <-w.now:
	default:
	}
}

// at schedules what fire does for when a message becomes visible. Those of one
// second share a signal, at the last of them: they are worth one poll, and the memory is
// bounded by the longest delay, not by the number of messages.
func (w *wake) at(due time.Time) {
	if !due.After(time.Now()) {
		w.fire()
		return
	}
	second := int64(due.Sub(w.epoch) / time.Second)
	w.mu.Lock()
	last, known := w.latest[second]
	if !known {
		heap.Push(&w.seconds, second)
	}
	if due.After(last) {
		w.latest[second] = due
	}
	first := !known && w.seconds[0] == second
	w.mu.Unlock()
	if first {
		waiting.Signal(w.fresh, struct{}{})
	}
}

// watch does what is scheduled until ctx ends. The session owns it.
func (w *wake) watch(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		fell, wait, more := w.next(time.Now())
		if fell {
			w.fire()
		}
		if more {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-w.fresh:
		case <-ctx.Done():
			return
		}
	}
}

// next removes what is due, and reports whether anything was, and how long to wait for the
// next.
func (w *wake) next(now time.Time) (fell bool, wait time.Duration, more bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.seconds) > 0 {
		if last := w.latest[w.seconds[0]]; last.After(now) {
			return fell, last.Sub(now), true
		}
		delete(w.latest, heap.Pop(&w.seconds).(int64))
		fell = true
	}
	return fell, 0, false
}

type secondHeap []int64

func (h secondHeap) Len() int           { return len(h) }
func (h secondHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h secondHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *secondHeap) Push(x any)        { *h = append(*h, x.(int64)) }
func (h *secondHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}
