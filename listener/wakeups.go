package listener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/isnil"
	"github.com/millrace/millrace/internal/jitter"
	"github.com/millrace/millrace/internal/nonblocking"
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
	more    atomic.Bool   // another instance is to be woken
	drained chan struct{} // closed when the listener has drained
	keeping sync.WaitGroup
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
		nonblocking.Send(s.scaler.raised, struct{}{})
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
	nonblocking.Send(s.wakeups.changed, struct{}{})
}

// onWait is called when a loop waits for slots, or in an outage of the handlers. If no slots can be
// opened there is no room for work, and other instances should get the events.
func (s *session) onWait(mayOpen bool) {
	if mayOpen && s.pool.canGrow() {
		if s.pool.hears().owed() {
			nonblocking.Send(s.scaler.raised, struct{}{})
		}
		return
	}
	s.passOn(s.pool.hears().owed())
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
		nonblocking.Send(s.wakeups.changed, struct{}{})
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
		nonblocking.Send(s.wakeups.changed, struct{}{})
	}
}

// checkWakeups returns an error if the source is a nil pointer, or if the safety poll has no unit.
func (c *sessionOptions) checkWakeups() error {
	if c.Wakeups != nil && isnil.Value(c.Wakeups) {
		return fmt.Errorf("the option Wakeups is a nil %T: leave it out for polling", c.Wakeups)
	}
	if c.SafetyPoll > 0 && c.SafetyPoll < time.Microsecond {
		return fmt.Errorf("safety poll %v is too short for any request: give it a unit, such as %d*time.Second, or a negative one for none", c.SafetyPoll, c.SafetyPoll)
	}
	return nil
}

// subscribe subscribes to the source of wake-ups, if there is one.
func (s *session) subscribe() error {
	if s.options.Wakeups == nil {
		return nil
	}
	var subscription wakeup.Subscription
	var err error
	returned := s.hooks.Contain("Wakeups.Subscribe", func() {
		subscription, err = s.options.Wakeups.Subscribe(s.queue.Name(), wakeup.Subscriber{Event: s.onEvent, Listening: s.onListening})
	})
	if !returned {
		err = errors.New("the source failed: see OnError or the log")
	} else if err == nil && isnil.Value(subscription) {
		err = errors.New("the source returned no subscription")
	}
	if err != nil {
		return fmt.Errorf("subscribe to wake-ups for %v: %w; without Options.Wakeups the listener polls", s.queue.Name(), err)
	}
	s.wakeups.keeping.Go(func() { s.keepSubscription(subscription) })
	if s.options.SafetyPoll > 0 {
		s.work.Go(func() { s.watchSafety(s.looping) })
	}
	return nil
}

// keepSubscription says to the source what there is to say, and logs when it is lost and comes back. From
// the stop on the source is told that there is no room. The subscription is closed after the drain: if
// messages were given back, another instance may be woken for them then.
func (s *session) keepSubscription(to wakeup.Subscription) {
	told := true
	tell := func(ready bool) {
		if told == ready {
			return
		}
		told = ready
		if !ready {
			s.pool.unlisten() // loops that end from now on would count on events
		}
		s.hooks.Contain("Wakeups.Ready", func() { to.Ready(ready) })
		if !ready {
			s.pool.unlisten() // Listening(true) may have come in between
		}
	}
	more := func() { s.hooks.Contain("Wakeups.More", to.More) }
	var lines connectionLog
	for s.looping.Err() == nil {
		tell(s.pool.hears().ready)
		if s.wakeups.more.Swap(false) {
			more()
		}
		lines.log(s)
		select {
		case <-s.wakeups.changed:
		case <-lines.later():
		case <-s.looping.Done():
		}
	}
	lines.stop()
	if told {
		s.hooks.Contain("Wakeups.Ready", func() { to.Ready(false) })
	}
	<-s.wakeups.drained
	if s.pool.hears().owed() {
		more()
	}
	s.hooks.Contain("Wakeups.Close", to.Close)
}

// unsubscribe ends the subscription after the drain, and waits for that.
func (s *session) unsubscribe() {
	if s.options.Wakeups == nil {
		return
	}
	close(s.wakeups.drained)
	s.wakeups.keeping.Wait()
}

// connectWithin is how long a source may take to connect before a line says that it has not.
const connectWithin = time.Second

// connectionLog logs whether events reach the listener, at most one line in logInterval, and in the end
// what holds.
type connectionLog struct {
	begun     bool
	ever      bool // events have reached the listener
	connected bool // as was logged, or as is expected at first
	timer     *time.Timer
	next      time.Time // when a line may be logged
}

func (c *connectionLog) log(s *session) {
	now := s.pool.hears().connected
	c.ever = c.ever || now
	if !c.begun { // a source that connects soon is not worth a line
		c.begun, c.connected, c.next = true, true, time.Now().Add(connectWithin)
	}
	if now == c.connected {
		return
	}
	if wait := time.Until(c.next); wait > 0 {
		c.stop()
		c.timer = time.NewTimer(wait)
		return
	}
	c.connected, c.next = now, time.Now().Add(logInterval)
	switch {
	case now:
		s.report.info("wake-ups come")
		return
	case !c.ever:
		s.report.info("no wake-ups yet: polling until they come")
		return
	}
	s.report.line(slog.LevelWarn, "wake-ups are lost: polling until they come back")
}

// later is ready when a line may be logged that could not be before.
func (c *connectionLog) later() <-chan time.Time {
	if c.timer == nil {
		return nil
	}
	return c.timer.C
}

func (c *connectionLog) stop() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

// watchSafety makes a loop poll when none has for a while, so that an event that was lost costs no more
// than that time. It runs until ctx ends; the session owns it.
func (s *session) watchSafety(ctx context.Context) {
	interval := s.options.SafetyPoll
	// Longer by up to 10 %, so that processes that started together do not poll together.
	polls := 0
	next := func() time.Duration {
		polls++
		return interval + time.Duration(jitter.Of(s.key+"/safety", polls)*float64(interval)/10)
	}
	wanted := next()
	timer := time.NewTimer(wanted)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		wait := wanted - time.Since(s.pool.hears().at)
		if wait <= 0 {
			s.hear(false)
			wanted = next()
			wait = wanted
		}
		timer.Reset(wait)
	}
}
