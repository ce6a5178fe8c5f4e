package listener

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/millrace/millrace/queue"
)

// Listener takes typed jobs off one queue. Make one with [New]; it is safe for
// concurrent use, and [Listener.Run] runs it once.
type Listener[T any] struct {
	queue   queue.Queue
	handler Handler[T]
	options *Options[T]

	halted closeOnce // opened by Halt

	mu      sync.Mutex
	session *session[T] // what Run runs, nil before; guarded by mu
}

// New returns a listener. It starts and sends nothing; [Listener.Run] refuses bad
// options before it starts.
func New[T any](q queue.Queue, h Handler[T], o *Options[T]) *Listener[T] {
	if o != nil { // the caller may go on using its struct
		c := *o
		o = &c
	}
	return &Listener[T]{queue: q, handler: h, options: o}
}

// Run takes jobs until ctx ends, then drains and returns nil. It returns early, and
// at once, when the options are bad or the service refuses us before anything ever
// worked; an [*AbandonedError] names handlers that would not stop. Handlers
// see the values of ctx, not its end. A listener runs once.
func (l *Listener[T]) Run(ctx context.Context) error {
	s, err := l.prepare()
	if err != nil {
		return err
	}
	looping, stop := context.WithCancel(ctx)
	defer stop()
	// Dequeues outlive the stop: cancelling one may hide 32 messages for a whole
	// visibility timeout.
	requests, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	defer hangUp()
	s.looping, s.requests = looping, requests

	s.dispatcher.Start(ctx)
	if !l.publish(s) {
		return errors.Join(fmt.Errorf("listener of %v: it has run already: make a new one", l.queue.Name()), s.dispatcher.Drain(ctx))
	}
	s.logStart()
	s.work.Go(func() { s.wake.watch(looping) })
	s.work.Go(func() { s.watchSaturation(looping) })
	s.grow(0) // which is Loops.Min

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

// drain is the shutdown after the stop: loops end, handlers finish within the grace
// period, and nothing runs any more.
func (l *Listener[T]) drain(s *session[T], hangUp func()) error {
	grace, over := context.WithTimeout(context.Background(), max(s.options.Grace, 0))
	defer over()
	ended := make(chan struct{})
	var watch sync.WaitGroup // owned by this call, which ends it
	watch.Go(func() {
		select {
		case <-l.halted.done():
			over()
		case <-grace.Done():
		}
		hangUp()
		select {
		case <-l.halted.done(): // also after the grace period, while handlers do not stop
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

// Halt stops the listener without a grace period, or ends the one that runs: the
// contexts of handlers are cancelled, their messages given back. Run returns soon
// after. It is safe to call at any time and more than once.
func (l *Listener[T]) Halt() { l.halted.close() }
