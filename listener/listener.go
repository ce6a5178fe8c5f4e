package listener

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// Listener takes typed jobs off one queue and runs a handler for each. Make one with [New], or with
// [NewKinds] for several types of jobs. It is safe for concurrent use; [Listener.Run] runs it once.
type Listener[T any] struct {
	queue   queue.Queue
	handler Handler[T]
	kinds   []Kind // in place of handler; nil for a listener made by New
	options *Options[T]
	steer   controller // tests set it, in place of that of the options

	halt sync.Once

	mu           sync.Mutex
	session      *session      // the run; nil before Run; guarded by mu
	halted       chan struct{} // closed by halt; nil before its first use; guarded by mu
	startsPaused bool          // Pause was called before Run; guarded by mu
	pausedSince  time.Time     // when; guarded by mu
}

// New returns a listener. It starts and sends nothing. [Listener.Run] reports invalid options.
func New[T any](q queue.Queue, h Handler[T], o *Options[T]) *Listener[T] {
	if o != nil { // the caller may reuse its struct
		c := *o
		o = &c
	}
	return &Listener[T]{queue: q, handler: h, options: o}
}

// Run takes jobs until ctx ends, then drains and returns nil. It returns early if the options
// are invalid, or if the service rejects the first requests as unauthorized or invalid. An
// [*AbandonedError] names handlers that did not stop. Handlers see the values of ctx, not its
// end. A listener runs only once.
func (l *Listener[T]) Run(ctx context.Context) error {
	s, err := l.prepare()
	if err != nil {
		return err
	}
	if l.current() != nil { // before it asks for the shared slots that the run has
		return l.hasRun()
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	if !l.publish(s) {
		return errors.Join(l.hasRun(), s.abort(ctx))
	}
	return s.run(l.halting())
}

func (l *Listener[T]) hasRun() error {
	return fmt.Errorf("listener of %v: it has already run: make a new one", l.queue.Name())
}

// Check returns the error if [Listener.Run] would refuse the queue, the handler or the options, or
// nil. It starts and sends nothing, and may be called at any time.
func (l *Listener[T]) Check() error {
	_, err := l.prepare()
	return err
}

// prepare checks the options and builds the session. It starts nothing.
func (l *Listener[T]) prepare() (*session, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	dispatch := func(q queue.Queue, o *dispatcher.Options) (*dispatcher.Dispatcher, error) {
		if l.kinds != nil {
			return dispatcher.NewKinds(q, l.kinds, o)
		}
		return dispatcher.New(q, l.options.jobs(l.handler), o)
	}
	o := l.options.session()
	if l.steer != nil {
		o.controller = l.steer
	}
	return newSession(l.queue, o, dispatch)
}

// check returns an error if the queue or the handler is missing, if the service would refuse the
// queue's name, or if there are several handlers and an option for one.
func (l *Listener[T]) check() error {
	if hook.IsNil(l.queue) {
		return errors.New("the listener has no queue: make it with New and a queue that is not nil")
	}
	bad := driver.CheckName(l.queue.Name().Queue)
	switch {
	case bad != nil:
		return fmt.Errorf("listener of %v: %w", l.queue.Name(), bad)
	case l.kinds == nil && l.handler == nil:
		return fmt.Errorf("listener of %v needs a handler: it is nil, or All, EachItem, Batch or Chain was given nothing, nil, or a number under 1", l.queue.Name())
	case l.kinds != nil && l.options != nil && (l.options.Codec != nil || l.options.TimeoutFor != nil):
		return fmt.Errorf("listener of %v: Codec and TimeoutFor are for a listener of one type: each kind has its codec and its Timeout", l.queue.Name())
	}
	return nil
}

// publish makes the session visible to State and Configure. It returns false if there was one
// before.
func (l *Listener[T]) publish(s *session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.session != nil {
		return false
	}
	l.session = s
	if l.startsPaused {
		s.owner.state.pauses, s.owner.state.pausedAt = programPauses, l.pausedSince.Sub(s.epoch)
	}
	return true
}

// current returns the session, or nil before Run.
func (l *Listener[T]) current() *session {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.session
}

// Halt stops the listener without a grace period, or ends a grace period: the contexts of
// handlers are cancelled and their messages given back. Run returns soon after. Halt may be
// called at any time and more than once.
func (l *Listener[T]) Halt() {
	halted := l.halting()
	l.halt.Do(func() { close(halted) })
}

// halting returns the channel that Halt closes.
func (l *Listener[T]) halting() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.halted == nil {
		l.halted = make(chan struct{})
	}
	return l.halted
}
