package shards

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
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

	member  *slots.Member // used by one listener after the other
	metered queue.Queue   // the queue, counted by all.readings
	rests   *retry.Waits  // used by run alone

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
	s.member = all.slots.Member(all.options.member(s.name))
	err := s.renew()
	if err != nil {
		s.unreserve()
	}
	return s, err
}

// unreserve gives up the membership. A shard that never runs reserves nothing there.
func (s *shard[T]) unreserve() {
	if s.member.Join(make(chan struct{}, 1)) == nil {
		s.member.Leave()
	}
}

// renew makes the next listener; one that has ended cannot run again. Only the first can be refused,
// because the next ones have its arguments. Requires all.mu.
func (s *shard[T]) renew() error {
	next, err := s.all.listen(s.queue, s.all.options.of(s.member, s.name))
	if err != nil {
		return err
	}
	if s.listener != nil {
		addCounts(&s.all.past, s.listener.State())
	}
	s.listener = next
	setPaused(s.listener, s.all.paused)
	if s.all.halted {
		s.listener.Halt()
	}
	return nil
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
	s.all.mu.Lock()
	s.refusal = refusal
	_ = s.renew()
	hope := slices.ContainsFunc(s.all.shards, func(other *shard[T]) bool { return other.refused() == nil })
	s.all.mu.Unlock()
	if !hope {
		waiting.Signal(s.all.hopeless, struct{}{})
		return false
	}
	wait := s.rests.Next()
	s.report("shard rests", &Error{Shard: s.name, Err: refusal, Again: wait})
	return waiting.For(wait, ctx.Done())
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

// The depth of a shard that is being removed is read at these intervals: a tenth of Settle, within
// these bounds.
const (
	minReadEvery = time.Second
	maxReadEvery = 30 * time.Second
)

// removal is a removal of a shard that goes on.
type removal struct {
	ended chan struct{} // closed at the end
	err   error         // why the shard was not removed; nil if it was; set before ended is closed
}

// Remove removes a shard: it is listened to until it has been empty for Options.Settle, hidden messages
// included, and then no more. Senders must not place on it any longer: whoever does keeps
// the shard, or, after Settle without any message, sends to a queue that nobody listens to. See the
// package comment for the order of steps.
//
// Remove waits until the shard is gone, and returns nil then. When ctx ends before, or Run, it
// returns an error. The end of ctx does not end the removal; call Remove again to wait for it, and [Listener.Add]
// to keep the shard. A shard that is refused, or whose depth cannot be read, is not removed, nor is the last one.
//
// Meanwhile the depth is read at intervals of a tenth of Settle, at least a second and at most
// 30 s.
func (l *Listener[T]) Remove(ctx context.Context, name queue.Name) error {
	r, err := l.beginRemoval(name)
	if err != nil {
		return fmt.Errorf("shards: remove %v: %w", name, err)
	}
	select {
	case <-r.ended:
		return r.err
	case <-ctx.Done():
		return fmt.Errorf("shards: remove %v: it is still listened to, until it has been empty for %v: %w", name, max(l.options.Settle, 0), context.Cause(ctx))
	}
}

// beginRemoval returns the removal of a shard, which may go on already.
func (l *Listener[T]) beginRemoval(name queue.Name) (*removal, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.find(name)
	switch {
	case l.phase > listener.Running:
		return nil, errors.New("the listener has stopped: the queue may have messages")
	case s == nil:
		return nil, errors.New("there is no such shard")
	case s.removal != nil:
		return s.removal, nil
	case !slices.ContainsFunc(l.shards, func(other *shard[T]) bool { return other != s && other.removal == nil }):
		return nil, errors.New("it is the last shard: add another one before")
	}
	s.removal = &removal{ended: make(chan struct{})}
	waiting.Signal(s.told, struct{}{})
	return s.removal, nil
}

// endRemoval ends the removal of a shard with an error, or nil if it is gone, and reports whether there
// was one. Requires all.mu.
func (s *shard[T]) endRemoval(err error) bool {
	r := s.removal
	if r == nil {
		return false
	}
	r.err = err
	close(r.ended)
	s.removal = nil
	waiting.Signal(s.told, struct{}{})
	return true
}

// removing returns the removal that goes on, or nil.
func (s *shard[T]) removing() *removal {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	return s.removal
}

// awaitRemoval waits until the shard is being removed and was empty for long enough. It returns false
// when ctx ended first.
func (s *shard[T]) awaitRemoval(ctx context.Context) (empty bool) {
	for {
		if r := s.removing(); r != nil && s.awaitEmpty(ctx, r) {
			return true
		}
		select {
		case <-s.told:
		case <-ctx.Done():
			return false
		}
	}
}

// awaitEmpty waits until the shard was empty for long enough. It returns false when ctx or the removal
// ended first.
func (s *shard[T]) awaitEmpty(ctx context.Context, r *removal) bool {
	settle := max(s.all.options.Settle, 0)
	every := min(max(settle/10, minReadEvery), maxReadEvery)
	var since time.Time // when it was first found empty; zero if it was not
	received := int64(-1)
	for {
		asked, taken := time.Now(), s.current().State().Received
		switch {
		case !s.isEmpty(ctx):
			since = time.Time{}
		case since.IsZero() || taken != received: // what was taken may have come after the last reading
			since = asked
		}
		received = taken
		if !since.IsZero() && asked.Sub(since) >= settle {
			return true
		}
		waiting.ForChange(every, r.ended, ctx.Done())
		if s.removing() != r || ctx.Err() != nil {
			return false
		}
	}
}

// isEmpty reads the depth. A queue that does not exist is empty; one whose depth is not known is not.
func (s *shard[T]) isEmpty(ctx context.Context) bool {
	p, err := s.metered.Properties(request.WithCause(ctx, request.CauseDepth))
	if errors.Is(err, queue.ErrQueueMissing) {
		return true
	}
	if err != nil && ctx.Err() == nil {
		s.report("shard stays", &Error{Shard: s.name, Err: fmt.Errorf("it is not removed until its depth is known: %w", err)})
	}
	if err == nil && p.Depth > 0 && s.all.options.Listener.Wakeups != nil {
		s.current().Wake() // an event may have been lost, and there may be no safety poll
	}
	return err == nil && p.Depth == 0
}

// leave removes the shard, whose listener has ended, if it is still empty and still being removed.
// Otherwise it makes the next listener.
func (s *shard[T]) leave(ctx context.Context) (gone bool) {
	r := s.removing()
	empty := r != nil && s.isEmpty(ctx) // of what came after the last reading nothing must be left
	all := s.all
	all.mu.Lock()
	defer all.mu.Unlock()
	if !empty || s.removal != r {
		_ = s.renew()
		return false
	}
	addCounts(&all.past, s.listener.State())
	all.shards = slices.DeleteFunc(all.shards, func(other *shard[T]) bool { return other == s })
	s.endRemoval(nil)
	return true
}
