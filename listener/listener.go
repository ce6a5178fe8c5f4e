package listener

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/millrace/millrace/queue"
)

// Listener takes typed jobs off one queue and runs a handler for each. Make one with [New]. It
// is safe for concurrent use; [Listener.Run] runs it once.
type Listener[T any] struct {
	queue   queue.Queue
	handler Handler[T]
	options *Options[T]

	halted closeOnce // closed by Halt

	mu      sync.Mutex
	session *session[T] // the run; nil before Run; guarded by mu
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
	looping, stop := context.WithCancel(ctx)
	defer stop()
	// Dequeues outlive the stop, because cancelling one may hide 32 messages for a whole
	// visibility timeout.
	requests, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	s.looping, s.requests = looping, requests

	s.dispatcher.Start(ctx)
	if !l.publish(s) {
		return errors.Join(fmt.Errorf("listener of %v: it has already run: make a new one", l.queue.Name()), s.dispatcher.Drain(ctx))
	}
	s.logStart()
	s.work.Go(func() { s.wake.watch(looping) })
	s.work.Go(func() { s.watchSaturation(looping) })
	s.grow(0) // starts Loops.Min loops

	var failure error
	select {
	case <-ctx.Done():
	case <-l.halted.done():
	case failure = <-s.failed:
	}
	stop()
	s.pool.close()
	s.dispatcher.Stop()
	s.logDraining(failure)
	err = errors.Join(failure, l.drain(s, hangUp))
	s.logStopped()
	return err
}

// drain shuts down after the stop: loops end, handlers finish within the grace period, and
// nothing runs any more.
func (l *Listener[T]) drain(s *session[T], hangUp func()) error {
	grace, over := context.WithTimeout(context.Background(), max(s.options.Grace, 0))
	defer over()
	ended := make(chan struct{})
	var watch sync.WaitGroup // waited for below
	watch.Go(func() {
		select {
		case <-l.halted.done():
			over()
		case <-grace.Done():
		}
		hangUp()
		select {
		case <-l.halted.done(): // also after the grace period, while handlers ignore their context
			s.dispatcher.Halt()
		case <-ended:
		}
	})
	s.work.Wait()
	err := s.dispatcher.Drain(grace)
	close(ended)
	over()
	watch.Wait()
	return err
}

// Halt stops the listener without a grace period, or ends a grace period: the contexts of
// handlers are cancelled and their messages given back. Run returns soon after. Halt may be
// called at any time and more than once.
func (l *Listener[T]) Halt() { l.halted.close() }
