package listener

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// dueMargin is how long after its Due an event causes a poll: clocks of machines that are set by NTP
// differ by less, and a poll that comes too early finds nothing.
const dueMargin = 100 * time.Millisecond

// wakeups is the listener's side of its subscription. Only one goroutine calls the subscription, because
// a call may call the listener back, and so that calls of Ready keep their order.
type wakeups struct {
	changed chan struct{} // buffered, one: there may be something to say to the source, or to log
	listens chan struct{} // buffered, one: the source has said that events reach the listener
	more    atomic.Bool   // another instance is to be woken
	drained chan struct{} // closed when the listener has drained
	ended   chan struct{} // closed when nothing of the subscription runs any more
}

// Wake says that work may have come: the listener polls at once, by a loop that it starts for that if none
// runs. Use it for news that come by other ways than Options.Wakeups, with or without those. Like an
// event it is a hint: see package wakeup. Many calls do not make many polls: those that find nothing are
// ten at once, and then one a second, or one in Idle.Max if that is less. It does not wait and sends
// nothing itself. Before Run and after the stop it does nothing.
func (l *Listener[T]) Wake() {
	if s := l.current(); s != nil && s.looping.Err() == nil {
		s.hear(true)
	}
}

// hear makes a loop poll. With limited it may be later: polls that find nothing must not follow a flood
// of events.
func (s *session) hear(limited bool) {
	interval := time.Duration(0)
	if limited {
		interval = min(s.idle.Load().Max, eventInterval)
	}
	fresh, wait := s.pool.hear(interval)
	switch {
	case wait > 0:
		s.dues.at(time.Now().Add(wait))
	case fresh && s.options.Wakeups != nil && s.dispatcher.Saturated():
		waiting.Signal(s.scaler.raised, struct{}{})
	}
}

// fallsDue makes a loop poll for messages that are visible now. An instance that has no room for them wakes
// another one, because nobody else may know of them, unless the queue is paused for all.
func (s *session) fallsDue(limited bool) {
	s.hear(limited)
	if !s.pool.hears().ready && !s.pauses.forFleet() {
		s.wakeAnother()
	}
}

// onEvent implements [wakeup.Subscriber].
func (s *session) onEvent(e wakeup.Event) {
	switch wait := time.Until(e.Due); {
	case !concerns(e.Queue, s.queue.Name()):
	case wait <= 0:
		s.fallsDue(true) // it may have no room since the source has picked it
	case s.looping.Err() == nil:
		// No delay is longer. So however many events there are, the memory for them is bounded.
		s.dues.at(time.Now().Add(min(wait, queue.MaxVisibility) + dueMargin))
	}
}

// concerns reports whether an event is about a queue. An account that is not known may be the right one.
func concerns(event, ours queue.Name) bool {
	return event.Queue == ours.Queue && (event.Account == ours.Account || event.Account == "" || ours.Account == "")
}

// onListening implements [wakeup.Subscriber].
func (s *session) onListening(on bool) {
	s.pool.listen(on)
	s.hear(true)
	if on {
		waiting.Signal(s.wakeups.listens, struct{}{})
	}
	waiting.Signal(s.wakeups.changed, struct{}{})
}

// onWait is called when a loop waits for slots, or in an outage of the handlers. If no slots can be
// opened there is no room for work, and other instances should get the events.
func (s *session) onWait(mayOpen bool) {
	if mayOpen && s.growsByDepth() {
		if s.pool.hears().owed() {
			waiting.Signal(s.scaler.raised, struct{}{})
		}
		return
	}
	// Too few shared slots for a full batch leave no other sign that the queue has more.
	s.passOn(s.pool.hears().owed() || s.options.Slots != nil && s.dispatcher.Backlog())
}

// listenWithin is how long a loop waits until events reach the listener again.
const listenWithin = 100 * time.Millisecond

// listenAgain says that there is room again, if there was none for a while, before the second dequeue of a busy
// period, and waits for a moment until events come. So that dequeue is the last one if it finds nothing.
// If it finds work the queue has a backlog: then the source is told when that is done.
func (l *loop) listenAgain(ctx context.Context) {
	if l.options.Wakeups == nil || l.found != 1 || l.errors != nil || l.dispatcher.Outage() {
		return
	}
	if h := l.pool.hears(); h.ready || h.listening || !h.connected {
		return
	}
	select { // an older one
	case <-l.wakeups.listens:
	default:
	}
	l.setReady(true)
	timer := time.NewTimer(listenWithin)
	defer timer.Stop()
	select {
	case <-l.wakeups.listens:
		l.wake.drain() // the dequeue that follows serves it
	case <-timer.C:
	case <-ctx.Done():
	}
}

// passOn lets events go to other instances. With woken another one is woken, because this one has heard
// of work and does not get to it.
func (s *session) passOn(woken bool) {
	if s.setReady(false) && woken {
		s.wakeAnother()
	}
}

// setReady says whether events may come to this instance, and reports whether that is a change.
func (s *session) setReady(ready bool) (changed bool) {
	if changed = s.options.Wakeups != nil && s.pool.setReady(ready); changed {
		waiting.Signal(s.wakeups.changed, struct{}{})
	}
	if ready && s.pauses.paused() { // it may have begun since the poll
		s.setReady(false)
	}
	return changed
}

// wakeAnother lets the source wake another instance.
func (s *session) wakeAnother() {
	if s.options.Wakeups != nil {
		s.wakeups.more.Store(true)
		waiting.Signal(s.wakeups.changed, struct{}{})
	}
}

// checkWakeups returns an error if the source is a nil pointer, or if the safety poll has no unit.
func (c *sessionOptions) checkWakeups() error {
	if c.Wakeups != nil && hook.IsNil(c.Wakeups) {
		return fmt.Errorf("the option Wakeups is a nil %T: leave it out for polling", c.Wakeups)
	}
	if c.SafetyPoll > 0 && c.SafetyPoll < time.Microsecond {
		return fmt.Errorf("safety poll %v is too short for any request: give it a unit, such as %d*time.Second, or a negative one for none", c.SafetyPoll, c.SafetyPoll)
	}
	return nil
}
