package listener

import (
	"errors"
	"fmt"
)

// Settings can be changed while a listener runs. A zero field leaves its setting unchanged.
type Settings struct {
	// Concurrency is how many handlers may run at the same time. Handlers beyond a lower number
	// finish.
	Concurrency int

	// Loops bounds how many dequeue loops run. Missing loops start immediately; loops in excess end
	// after their next poll. A value stays set; Max adapts to Concurrency as long as it was never
	// set: see Loops. If Max is set below Min, Max applies; a Min above Max raises Max. Since zero
	// changes nothing, a Min that was set cannot become 0 again, the default with Options.Wakeups.
	Loops Loops

	// Idle is how long loops wait when the queue is empty. It applies from the next empty poll on,
	// as a whole, and every loop polls once to pick it up. Setting it together with a QueueEmpty
	// hook, which overrides it, is an error.
	Idle Idle
}

// errNotRunning is the error of [Listener.Configure] before and after Run.
var errNotRunning = errors.New("it is not running: pass the options to New instead")

// Configure changes settings of a running listener: all of them, or no setting with an error. It
// sends nothing and does not wait. It is safe for concurrent use.
func (l *Listener[T]) Configure(c Settings) error {
	if err := l.check(); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	err := errNotRunning
	if s := l.current(); s != nil && s.looping.Err() == nil {
		err = s.configure(c)
	}
	if err != nil {
		return fmt.Errorf("configure the listener of %v: %w", l.queue.Name(), err)
	}
	return nil
}

func (s *session) configure(c Settings) error {
	if c.Concurrency < 0 {
		return fmt.Errorf("concurrency %d must be at least 1", c.Concurrency)
	}
	idle, err := idleWithDefaults(c.Idle)
	if err != nil {
		return err
	}
	if err := idleBesideHook(c.Idle, s.options.Fetch.QueueEmpty != nil); err != nil {
		return err
	}
	if err := c.Loops.check(); err != nil {
		return err
	}
	e := event{what: configured, set: Settings{Concurrency: c.Concurrency, Loops: c.Loops}}
	if isSet(c.Idle) {
		e.idle = &idle
	}
	s.hears(e)
	return nil
}
