package listener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	if on {
		nonblocking.Send(s.wakeups.listens, struct{}{})
	}
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

// A source must not wait. One that does is left behind at the stop after so long, or at Halt sooner.
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
	err := s.awaitAnswer(answered, halted)
	if err != nil {
		return fmt.Errorf("subscribe to wake-ups for %v: %w; without Options.Wakeups the listener polls", s.queue.Name(), err)
	}
	if s.options.SafetyPoll > 0 {
		s.work.Go(func() { s.watchSafety(s.looping) })
	}
	return nil
}

// callSubscribe subscribes. It may be called when the listener has stopped meanwhile.
func (s *session) callSubscribe() (to wakeup.Subscription, err error) {
	returned := s.hooks.Contain("Wakeups.Subscribe", func() {
		to, err = s.options.Wakeups.Subscribe(s.queue.Name(), wakeup.Subscriber{Event: s.onEvent, Listening: s.onListening})
	})
	if !returned {
		err = errors.New("the source failed: see OnError or the log")
	} else if err == nil && isnil.Value(to) {
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
	if s.pool.hears().owed() || s.wakeups.more.Load() {
		more()
	}
	s.hooks.Contain("Wakeups.Close", to.Close)
}

// unsubscribe ends the subscription after the drain, and waits for that. It returns an error if the source
// does not return.
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
