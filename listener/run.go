package listener

import (
	"context"
	"errors"
	"sync"

	"github.com/millrace/millrace/queue"
)

// start makes the session ready for run. Handlers see the values of ctx, and the loops also its
// end. With an error nothing has started.
func (s *session) start(ctx context.Context) error {
	if err := s.dispatcher.Start(ctx); err != nil {
		return err
	}
	s.looping, s.stopLooping = context.WithCancel(ctx)
	// Dequeues outlive the stop, because cancelling one may hide 32 messages for a whole
	// visibility timeout.
	s.requests, s.hangUp = context.WithCancel(context.WithoutCancel(ctx))
	s.fetches = queue.WithCause(s.requests, queue.CauseFetch)
	return nil
}

// abort ends a session that was started and is not run.
func (s *session) abort(ctx context.Context) error {
	s.stopLooping()
	s.hangUp()
	return s.dispatcher.Drain(ctx)
}

// run runs the loops until the context of start ends, halted is closed or the service refuses
// the first requests, and then drains.
func (s *session) run(halted <-chan struct{}) error {
	defer s.stopLooping()
	defer s.hangUp()
	s.logStart()
	leave := s.accompany(s.looping)
	s.pauses.onEnd(s.pollSoon)
	s.announcePause()
	s.work.Go(func() { s.wake.watch(s.looping) })
	s.work.Go(func() { s.watchSaturation(s.looping) })
	s.work.Go(func() { s.dues.watch(s.looping) })
	failure := s.subscribe(halted)
	if failure == nil {
		s.grow(0) // starts Loops.Min loops, or one if no events reach the listener
		select {
		case <-s.looping.Done():
		case <-halted:
		case failure = <-s.failed:
		}
	}
	s.stopLooping()
	s.pool.close()
	s.dispatcher.Stop()
	s.logDraining(failure)
	if running, settling := s.dispatcher.Running(); running+settling > 0 {
		s.changed() // else the last report follows at once
	}
	err := errors.Join(failure, s.drain(halted), s.unsubscribe(halted))
	leave()
	s.logStopped()
	return err
}

// drain shuts down after the stop: loops end, handlers finish within the grace period, and
// nothing runs any more.
func (s *session) drain(halted <-chan struct{}) error {
	grace, over := context.WithTimeout(context.Background(), max(s.options.Grace, 0))
	defer over()
	ended := make(chan struct{})
	var watch sync.WaitGroup // waited for below
	watch.Go(func() {
		select {
		case <-halted:
			over()
		case <-grace.Done():
		}
		s.hangUp()
		select {
		case <-halted: // also after the grace period, while handlers ignore their context
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
