package listener

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

// agenda remembers when work becomes visible. It has a lock of its own, so that single messages do
// not reach the owner.
type agenda struct {
	mu       sync.Mutex
	released calendar // messages that were given back; guarded by mu
	left     calendar // messages that were left to other workers; guarded by mu
	called   calendar // events that are due later; guarded by mu
}

// calendar has at most one time in each second, the last that was added: all times of a second are
// worth one poll, and the memory is bounded by the longest delay, not by the number of messages.
type calendar struct {
	seconds secondHeap
	latest  map[int64]time.Time // by second
}

// add adds a time, and reports whether its second is the earliest and new.
func (c *calendar) add(due time.Time, second int64) (first bool) {
	last, known := c.latest[second]
	if !known {
		if c.latest == nil {
			c.latest = make(map[int64]time.Time)
		}
		heap.Push(&c.seconds, second)
	}
	if due.After(last) {
		c.latest[second] = due
	}
	return !known && c.seconds[0] == second
}

// take removes the times that are due, and reports whether there were any. It returns the next
// time, or zero.
func (c *calendar) take(now time.Time) (fell bool, next time.Time) {
	for len(c.seconds) > 0 {
		if next = c.latest[c.seconds[0]]; next.After(now) {
			return fell, next
		}
		delete(c.latest, heap.Pop(&c.seconds).(int64))
		fell = true
	}
	return fell, time.Time{}
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

// onRelease notes when a message becomes visible that was given back. One that is left to others is
// not worth a poll, because this worker would take it again before they see it: another one is woken.
func (s *session) onRelease(due time.Time, forOthers bool) {
	switch {
	case !forOthers && !due.After(time.Now()):
		s.hears(event{what: dueNow})
	case !forOthers:
		s.remember(due, &s.agenda.released)
	case s.options.Wakeups != nil:
		s.remember(due, &s.agenda.left)
	}
}

// remember tells the owner when work becomes visible that a calendar of the agenda has.
func (s *session) remember(due time.Time, c *calendar) {
	a := &s.agenda
	a.mu.Lock()
	first := c.add(due, int64(due.Sub(s.epoch)/time.Second))
	a.mu.Unlock()
	if first {
		waiting.Signal(s.alarm, struct{}{})
	}
}

// fallDue takes the times that are due off the agenda, and returns the event for them. It returns
// the next time, or zero.
func (a *agenda) fallDue(now time.Time) (e event, next time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	e.what = timePassed
	var later time.Time
	e.released, next = a.released.take(now)
	e.called, later = a.called.take(now)
	next = earlier(next, later)
	e.left, later = a.left.take(now)
	return e, earlier(next, later)
}

// earlier returns the earlier of two times. Zero is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// hears is tell for an event that is, or may be, a reason to poll.
func (s *session) hears(e event) (state, answer) {
	e.saturated = s.options.Wakeups != nil && s.dispatcher.Saturated()
	return s.tell(e)
}

// watchTime tells the owner of alarms, and of times that fall due, until ctx ends.
func (s *session) watchTime(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		e, next := s.agenda.fallDue(time.Now())
		now := s.snapshot()
		alarm := s.timeOf(now.alarm())
		if e.released || e.left || e.called || !alarm.IsZero() && !alarm.After(time.Now()) {
			e.saturated = s.dispatcher.Saturated()
			s.tell(e)
			continue
		}
		if next = earlier(next, alarm); next.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(next))
		}
		select {
		case <-timer.C:
		case <-s.alarm:
		case <-ctx.Done():
			return
		}
	}
}
