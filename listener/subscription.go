package listener

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/wakeup"
)

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
	returned := s.hooks.Call("Wakeups.Subscribe", func() {
		to, err = s.options.Wakeups.Subscribe(s.queue.Name(), wakeup.Subscriber{Event: s.onEvent, Listening: s.onListening})
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
		s.hooks.Call("Wakeups.Ready", func() { to.Ready(ready) })
		if !ready {
			s.pool.unlisten() // Listening(true) may have come in between
		}
	}
	more := func() { s.hooks.Call("Wakeups.More", to.More) }
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
		s.hooks.Call("Wakeups.Ready", func() { to.Ready(false) })
	}
	<-s.wakeups.drained
	if s.pool.hears().owed() || s.wakeups.more.Load() {
		more()
	}
	s.hooks.Call("Wakeups.Close", to.Close)
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
