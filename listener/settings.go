package listener

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/millrace/millrace/scaling"
)

// Settings are what can change while a listener runs. A zero field leaves its setting as
// it is.
type Settings struct {
	// Concurrency is how many handlers run at once. Handlers beyond a lower number
	// finish.
	Concurrency int

	// Loops bounds how many dequeue loops run, Max following Concurrency if it never was
	// set: missing ones start at once, surplus ones
	// end with their next turn. Raising Min by n is the source's StartListener(n) (L-01).
	Loops Loops

	// Idle says how long loops wait when the queue is empty. It holds from the next
	// empty poll on.
	Idle scaling.Idle
}

// errNotRunning is what [Listener.Configure] says before Run and after.
var errNotRunning = errors.New("it does not run: give its options to New instead")

// Configure changes settings of a running listener, all of them or, with an error that
// says what is wrong, none. It sends nothing and does not wait. It is safe for concurrent
// use.
func (l *Listener[T]) Configure(c Settings) error {
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
	idle, err := c.Idle.WithDefaults()
	if err != nil {
		return err
	}
	if c.Concurrency > 0 && c.Loops.Max == 0 && s.maxFollows {
		c.Loops.Max = loopsFor(c.Concurrency, s.options.BatchSize)
	}
	bounds, err := s.fleet.changedBounds(c.Loops)
	if err != nil {
		return err
	}
	if c.Idle.Min != 0 || c.Idle.Max != 0 || c.Idle.New != nil {
		s.idle.Store(&idle)
	}
	if c.Concurrency > 0 {
		s.dispatcher.Resize(c.Concurrency)
	}
	if s.fleet.rebound(bounds) {
		s.scale.raise()
	}
	s.grow(bounds.Min)
	s.wake.signal()
	return nil
}

// idleSetting is the Idle in force. Loops compare the pointer to see a change.
type idleSetting = atomic.Pointer[scaling.Idle]
