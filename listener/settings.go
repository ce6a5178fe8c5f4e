package listener

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Settings are what can change while a listener runs. A zero field leaves its setting as
// it is.
type Settings struct {
	// Concurrency is how many handlers run at once. Handlers beyond a lower number
	// finish.
	Concurrency int

	// Loops bounds how many dequeue loops run: missing ones start at once, surplus ones
	// end with their next turn. What was set stays set, and Max follows Concurrency while it
	// never was: see Loops. A Max below Min holds, and a Min above Max raises Max.
	Loops Loops

	// Idle says how long loops wait when the queue is empty. It holds from the next
	// empty poll on, and every loop polls once to learn of it. It is refused beside a
	// QueueEmpty hook, which decides in its place.
	Idle Idle
}

// errNotRunning is what [Listener.Configure] says before Run and after.
var errNotRunning = errors.New("it does not run: give its options to New instead")

// Configure changes settings of a running listener, all of them or, with an error that
// says what is wrong, none. It sends nothing and does not wait. It is safe for concurrent
// use.
func (l *Listener[T]) Configure(c Settings) error {
	if err := check(l.queue, l.handler); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	l.mu.Lock()
	s := l.session
	l.mu.Unlock()
	err := errNotRunning
	if s != nil && s.looping.Err() == nil {
		err = s.configure(c)
	}
	if err != nil {
		return fmt.Errorf("configure the listener of %v: %w", l.queue.Name(), err)
	}
	return nil
}

func (s *session[T]) configure(c Settings) error {
	s.settings.Lock()
	defer s.settings.Unlock()
	if c.Concurrency < 0 {
		return fmt.Errorf("concurrency %d must be at least 1", c.Concurrency)
	}
	idle, err := idleWithDefaults(c.Idle)
	if err != nil {
		return err
	}
	if err := idleBesideHook(c.Idle, s.options.QueueEmpty != nil); err != nil {
		return err
	}
	if err := c.Loops.check(); err != nil {
		return err
	}
	s.loops = s.loops.changed(c.Loops)
	if c.Concurrency > 0 {
		s.concurrency = c.Concurrency
		s.dispatcher.Resize(c.Concurrency)
	}
	if isSet(c.Idle) {
		s.idle.Store(&idle)
	}
	bounds := s.loops.bounds(s.concurrency, s.options.BatchSize)
	if s.pool.setBounds(bounds) {
		trySignal(s.scaler.raised)
	}
	s.grow(bounds.Min)
	s.wake.signal()
	return nil
}

// idleSetting is the Idle in force. Loops compare the pointer to see a change.
type idleSetting = atomic.Pointer[Idle]
