package listener

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// dueMargin is how long after its Due an event causes a poll: clocks of machines that are set by
// NTP differ by less, and a poll that comes too early finds nothing.
const dueMargin = 100 * time.Millisecond

// Wakeups is a source of hints that work has come, for [Options].Wakeups: an Engine of package
// localqueue, or a Bus or a transport of package wakeup. Implementations must be safe for concurrent
// use. The suite in package wakeuptest tests them.
type Wakeups interface {
	// Subscribe registers a listener for the events of a queue, until it closes the subscription.
	// It does not wait for a connection. An error means that the source cannot deliver such events,
	// and ends Run.
	//
	// The source calls one of the two functions at a time. They do not wait. It calls event when
	// messages have come to a queue, or will be visible there at a later time, due; the zero time
	// means now, and zero bytes are an unknown size. The listener ignores events of other queues.
	// It calls listening with true when events begin to reach the listener, and with false when
	// they cease to, such as when a connection is lost.
	//
	// The listener calls Ready(false) while it has no room for work, so that others hear events in
	// its place, and More when it found more work than it took, so that another process is woken.
	// After Close nothing is called.
	Subscribe(q queue.Name, event func(q queue.Name, bytes int64, due time.Time), listening func(bool)) (interface {
		Ready(room bool)
		More()
		Close() error
	}, error)
}

// subscription is the result of Subscribe.
type subscription = interface {
	Ready(room bool)
	More()
	Close() error
}

// wakeups is the listener's side of its subscription. Only one goroutine calls the subscription,
// because a call may call the listener back, and so that calls of Ready keep their order.
type wakeups struct {
	changed chan struct{} // buffered, one: there may be something to say to the source, or to log
	drained chan struct{} // closed when the listener has drained
	ended   chan struct{} // closed when nothing of the subscription runs any more
}

func newWakeups() wakeups {
	return wakeups{make(chan struct{}, 1), make(chan struct{}), make(chan struct{})}
}

// Wake says that work may have come: the listener polls immediately, and starts a loop for that if
// no loop runs. Use it for news from other sources than Options.Wakeups, with or without that. Like
// an event it is a hint: see package wakeup. Many calls do not make many polls: empty ones are
// limited to a burst of ten, and then one a second, or one in Idle.Max if that is less. It does not
// wait and sends nothing itself. Before Run and after the stop it does nothing.
func (l *Listener[T]) Wake() {
	if s := l.current(); s != nil && s.looping.Err() == nil {
		s.hears(event{what: called})
	}
}

// onEvent is called by the source for each event.
func (s *session) onEvent(q queue.Name, _ int64, due time.Time) {
	switch wait := time.Until(due); {
	case !concerns(q, s.queue.Name()):
	case wait <= 0: // the listener may have no room since the source has picked it
		s.hears(event{what: dueNow, limited: true})
	case s.looping.Err() == nil:
		// No delay is longer. So however many events there are, the memory for them is bounded.
		s.remember(time.Now().Add(min(wait, queue.MaxVisibility)+dueMargin), &s.agenda.called)
	}
}

// concerns reports whether an event is about a queue. An account that is not known may be the right
// one.
func concerns(event, ours queue.Name) bool {
	return event.Queue == ours.Queue && (event.Account == ours.Account || event.Account == "" || ours.Account == "")
}

// onListening is called by the source when events begin or cease to come.
func (s *session) onListening(on bool) { s.hears(event{what: listens, on: on}) }

// A source must not wait. One that does is left behind at the stop after so long, or at Halt
// sooner.
const (
	sourceWithin = 5 * time.Second
	haltedWithin = 500 * time.Millisecond
)

// subscribe subscribes to the source of wake-ups, if there is one.
func (s *session) subscribe(halted <-chan struct{}) error {
	if s.options.Wakeups == nil {
		return nil
	}
	answered := make(chan error, 1)
	go func() { // unsubscribe waits for it
		defer close(s.wakeups.ended)
		to, err := s.callSubscribe()
		if answered <- err; err == nil {
			s.keepSubscription(to)
		}
	}()
	if err := s.awaitAnswer(answered, halted); err != nil {
		return fmt.Errorf("subscribe to wake-ups for %v: %w; without Options.Wakeups the listener polls", s.queue.Name(), err)
	}
	return nil
}

// callSubscribe subscribes. It may be called when the listener has stopped meanwhile.
func (s *session) callSubscribe() (to subscription, err error) {
	returned := s.hooks.Call("Wakeups.Subscribe", func() {
		to, err = s.options.Wakeups.Subscribe(s.queue.Name(), s.onEvent, s.onListening)
	})
	if !returned {
		err = errors.New("the source failed: see OnError or the log")
	} else if err == nil && hook.IsNil(to) {
		err = errors.New("the source returned no subscription")
	}
	return to, err
}

// awaitAnswer waits for the answer to Subscribe. From the stop on it waits for a moment only.
func (s *session) awaitAnswer(answered <-chan error, halted <-chan struct{}) error {
	select {
	case err := <-answered:
		return err
	case <-s.looping.Done():
	case <-halted:
	}
	timer := time.NewTimer(haltedWithin)
	defer timer.Stop()
	select {
	case err := <-answered:
		return err
	case <-timer.C:
		return nil // unsubscribe says so
	}
}

// keepSubscription calls the source, and logs when the connection is lost and comes back. From the
// stop on the source is told that there is no room. The subscription is closed after the drain: if
// messages were given back, another instance may be woken for them then.
func (s *session) keepSubscription(to subscription) {
	told := true
	tell := func(ready bool) {
		if told == ready {
			return
		}
		told = ready
		if !ready {
			s.tell(event{what: deafened}) // loops that end from now on would count on events
		}
		s.hooks.Call("Wakeups.Ready", func() { to.Ready(ready) })
		if !ready {
			s.tell(event{what: deafened}) // listening(true) may have come in between
		}
	}
	more := func() { s.hooks.Call("Wakeups.More", to.More) }
	var lines connectionLog
	for s.looping.Err() == nil {
		now, a := s.tell(event{what: speaks})
		tell(now.ready)
		if a.is(callMore) {
			more()
		}
		waiting.ForChange(lines.log(s), s.wakeups.changed, s.looping.Done())
	}
	if told {
		s.hooks.Call("Wakeups.Ready", func() { to.Ready(false) })
	}
	<-s.wakeups.drained
	if now := s.snapshot(); now.owed() || now.more {
		more()
	}
	s.hooks.Call("Wakeups.Close", func() { _ = to.Close() })
}

// unsubscribe ends the subscription after the drain, and waits for that. It returns an error if the
// source does not return.
func (s *session) unsubscribe(halted <-chan struct{}) error {
	if s.options.Wakeups == nil {
		return nil
	}
	close(s.wakeups.drained)
	timer := time.NewTimer(sourceWithin)
	defer timer.Stop()
	for {
		select {
		case <-s.wakeups.ended:
			return nil
		case <-halted:
			halted = nil
			timer.Reset(haltedWithin)
		case <-timer.C:
			return fmt.Errorf("listener of %v: the source of wake-ups, a %T, is left behind in a call that does not return: Subscribe, Ready, More and Close must not wait", s.queue.Name(), s.options.Wakeups)
		}
	}
}

// connectWithin is how long a source may take to connect before a line says that it has not.
const connectWithin = time.Second

// connectionLog logs whether events reach the listener, at most one line in logInterval. The last
// line is always true.
type connectionLog struct {
	begun     bool
	ever      bool      // events have reached the listener
	connected bool      // as was logged, or as is expected at first
	next      time.Time // when a line may be logged
}

// log logs a change of the connection. If it is too soon for another line, it returns how long to wait
// before the next call, and otherwise 0.
func (c *connectionLog) log(s *session) time.Duration {
	now := s.snapshot().connected
	c.ever = c.ever || now
	if !c.begun { // a source that connects soon is not worth a line
		c.begun, c.connected, c.next = true, true, time.Now().Add(connectWithin)
	}
	if now == c.connected {
		return 0
	}
	if wait := time.Until(c.next); wait > 0 {
		return wait
	}
	c.connected, c.next = now, time.Now().Add(logInterval)
	switch {
	case now:
		s.report.info("wake-ups come")
	case !c.ever:
		s.report.info("no wake-ups yet: polling until they come")
	default:
		s.report.line(slog.LevelWarn, "wake-ups are lost: polling until they come back")
	}
	return 0
}

// emptyAfter returns driver.EmptyAfter of q, or the number that the source has in its place.
func (c *sessionOptions) emptyAfter(q queue.Queue) int {
	n := driver.EmptyAfter(q)
	if source, ok := c.Wakeups.(interface{ EmptyAfter() int }); ok && n > 0 {
		n = source.EmptyAfter()
	}
	return n
}

// linger returns how long a dequeue waits at most while events follow closely.
func (c *sessionOptions) linger() time.Duration {
	if source, ok := c.Wakeups.(interface{ Linger() time.Duration }); ok {
		return min(source.Linger(), lingerTime)
	}
	return lingerTime
}

// checkWakeups returns an error if the source is a nil pointer.
func (c *sessionOptions) checkWakeups() error {
	if c.Wakeups != nil && hook.IsNil(c.Wakeups) {
		return fmt.Errorf("the option Wakeups is a nil %T: leave it out for polling", c.Wakeups)
	}
	return nil
}
