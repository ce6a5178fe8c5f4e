package shards

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/pool"
	"github.com/millrace/millrace/queue"
)

// A shard that the service refuses is tried again after waits within these bounds, growing.
const (
	firstRest = time.Second
	maxRest   = time.Minute
)

type shard[T any] struct {
	all   *Listener[T]
	queue queue.Queue
	name  queue.Name

	member  *pool.Member // used by one listener after the other
	metered queue.Queue  // the queue, counted by all.readings
	rests   *retry.Waits // used by run alone

	told chan struct{} // buffered, one: removal has changed

	// These are guarded by all.mu.
	listener *listener.Listener[T] // the one that runs, or the next one while the shard rests
	refusal  error                 // why the listener before was refused; nil if it was not
	removal  *removal              // nil unless the shard is being removed
}

// newShard returns a shard that does not run yet. The error is that of the options. Requires all.mu.
func newShard[T any](all *Listener[T], q queue.Queue) (*shard[T], error) {
	s := &shard[T]{all: all, queue: q, name: q.Name(), metered: all.readings.Wrap(q), told: make(chan struct{}, 1)}
	s.rests = retry.NewWaits(fmt.Sprintf("%x/%v", all.seed, s.name), firstRest, maxRest)
	s.member = all.pool.Member(all.options.member(s.name))
	s.renew()
	err := s.listener.Check()
	if err != nil && s.member.Join(make(chan struct{}, 1)) == nil {
		s.member.Leave() // nothing of a shard that cannot run is reserved
	}
	return s, err
}

// renew makes the next listener; one that has ended cannot run again. Requires all.mu.
func (s *shard[T]) renew() {
	if s.listener != nil {
		addCounts(&s.all.past, s.listener.State())
	}
	s.listener = s.all.listen(s.queue, s.all.options.of(s.member, s.name))
	setPaused(s.listener, s.all.paused)
	if s.all.halted {
		s.listener.Halt()
	}
}

// run listens until ctx ends, also by Halt, or the shard has been removed. It goes on with another listener when one
// was refused, or was stopped for a removal that did not happen.
func (s *shard[T]) run(ctx context.Context) {
	for {
		found, err := s.listenOnce(ctx)
		switch {
		case ctx.Err() != nil:
			s.end(err)
			return
		case found:
			if err != nil { // such as handlers that were abandoned
				s.report("shard stopped", &Error{Shard: s.name, Err: err})
			}
			if s.leave(ctx) {
				return
			}
		case !s.rest(ctx, err):
			s.end(err)
			return
		}
	}
}

// listenOnce runs the listener until it ends. It stops it when the shard is being removed and was found
// empty.
func (s *shard[T]) listenOnce(ctx context.Context) (foundEmpty bool, err error) {
	ctx, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		if foundEmpty = s.awaitRemoval(ctx); foundEmpty {
			stop()
		}
	})
	err = s.current().Run(ctx)
	stop()
	watch.Wait()
	return foundEmpty, err
}

func (s *shard[T]) current() *listener.Listener[T] {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	return s.listener
}

// end ends the shard with the listener. An error is for Run to return.
func (s *shard[T]) end(err error) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if err == nil {
		err = s.refused()
	}
	if err != nil {
		s.all.failed = append(s.all.failed, &Error{Shard: s.name, Err: err})
	}
}

// refused returns why the service refused the shard, or nil if a dequeue has succeeded since.
// Requires all.mu.
func (s *shard[T]) refused() error {
	if s.refusal != nil && !s.listener.State().LastPoll.IsZero() {
		s.refusal = nil
	}
	return s.refusal
}

// rest waits after the service has refused the shard. It returns false when ctx has ended, or when
// every shard is refused.
func (s *shard[T]) rest(ctx context.Context, refusal error) bool {
	if s.renewRefused(refusal) {
		waiting.Signal(s.all.hopeless, struct{}{})
		return false
	}
	wait := s.rests.Next()
	s.report("shard rests", &Error{Shard: s.name, Err: refusal, Again: wait})
	return waiting.For(wait, ctx.Done())
}

// renewRefused makes the next listener after one that was refused, and reports whether all shards are
// refused now.
func (s *shard[T]) renewRefused(refusal error) (all bool) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	s.refusal = refusal
	s.renew()
	return !slices.ContainsFunc(s.all.shards, func(other *shard[T]) bool { return other.refused() == nil })
}

// report gives an error to the log, with a message, and to OnError. A panic in one of them ends nothing.
func (s *shard[T]) report(message string, err *Error) {
	o := s.all.options.Listener
	hook.Run(func() { o.Logger.Warn(message, slog.Any("shard", s.name), slog.String("error", err.Error())) })
	if o.OnError == nil {
		return
	}
	if failure := hook.Run(func() { o.OnError(err) }); failure != nil {
		hook.Run(func() {
			o.Logger.Error("hook failed", slog.String("hook", "OnError"), slog.Any("shard", s.name), slog.Any("panic", failure.Value), slog.String("stack", string(failure.Stack)))
		})
	}
}
