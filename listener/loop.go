package listener

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/millrace/millrace/internal/jitter"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// After an error a loop waits within these, growing, whatever its idle curve says
// (L-16, X-09).
const (
	firstErrorWait = 100 * time.Millisecond
	maxErrorWait   = 30 * time.Second
)

// leastHookWait keeps a QueueEmpty hook that says zero from polling in a spin.
const minHookWait = time.Millisecond

// loop is one dequeue goroutine. Its fields are its own.
type loop[T any] struct {
	*session[T]
	empties int             // empty polls in a row
	setting *Idle           // that the curve was made for
	curve   backoff.BackOff // waits after empty polls
	errors  backoff.BackOff // waits after errors in a row; nil before the first
	created bool            // it made the queue, and no dequeue was answered since
}

// run fetches until the listener stops or the loop may end.
func (l *loop[T]) run(ctx context.Context) {
	for {
		reserved := l.dispatcher.Reserve(ctx)
		if reserved == 0 {
			break
		}
		if ctx.Err() != nil {
			l.dispatcher.Dispatch(nil, reserved, time.Time{}, 0)
			break
		}
		wait, leave := l.poll(reserved)
		if leave {
			return
		}
		woken := l.sleep(ctx, wait)
		if l.stopIfExcess() {
			if woken { // somebody has to poll
				l.wake.signal()
			}
			return
		}
	}
	l.pool.stopped()
}

// turn is one dequeue and what follows from it: how long to wait, and whether the
// loop has left the fleet.
func (l *loop[T]) poll(reserved int) (wait time.Duration, leave bool) {
	visibility := l.dispatcher.Visibility()
	// Before the request: a lower bound for when the service begins to count.
	asked := time.Now()
	batch, err := l.queue.Dequeue(l.requests, reserved, visibility)
	l.observe(reserved, batch, time.Since(asked), err)
	l.health.polled(err)
	l.dispatcher.Dispatch(batch, reserved, asked, visibility)
	if errors.Is(err, queue.ErrQueueMissing) {
		return l.onQueueMissing(err)
	}
	if err != nil {
		return l.onError(err), false
	}
	l.errors, l.created = nil, false
	l.polled(len(batch))
	if len(batch) == 0 {
		return l.onEmptyPoll()
	}
	l.empties = 0
	l.curve.Reset()
	l.rescale(len(batch), len(batch) >= reserved)
	return 0, false
}

// observe tells the observer of a dequeue.
func (l *loop[T]) observe(asked int, batch []queue.Message, took time.Duration, err error) {
	o := &l.options.Observer
	if o.Polled != nil {
		o.Polled(Poll{Queue: l.queue.Name(), Asked: asked, Got: len(batch), Took: took, Err: err})
	}
	if o.Received != nil && len(batch) > 0 {
		o.Received(batch)
	}
}

// empty decides what follows an empty poll (L-14).
func (l *loop[T]) onEmptyPoll() (wait time.Duration, leave bool) {
	l.empties++
	l.scaler.markIdle()
	if wait, stop, ok := l.askQueueEmpty(); ok {
		if stop && l.tryStop() {
			return 0, true // at once, without the wait
		}
		return max(wait, minHookWait), false
	}
	idle := l.currentIdle()
	wait = idleWait(idle, l.curve.NextBackOff())
	if wait < idle.Max {
		return wait, false
	}
	if l.tryStop() {
		return 0, true
	}
	// Who stays sleeps a little longer than Max, each differently: fleets that
	// were started together do not poll together, and one poll per Max is a bound.
	return wait + time.Duration(l.nextJitter()*float64(wait)/10), false
}

// missing decides what follows a dequeue from a queue that does not exist: it is made if
// the options say so, and otherwise waited for, as an empty one.
func (l *loop[T]) onQueueMissing(err error) (wait time.Duration, leave bool) {
	if l.options.Create && !l.created {
		err = l.queue.Create(l.requests, nil)
		if err == nil || errors.Is(err, queue.ErrQueueExists) {
			l.report.info("queue created")
			l.errors, l.created = nil, true
			return 0, false
		}
		return l.onError(err), false
	}
	l.errors, l.created = nil, false
	l.report.poll(hint(err))
	return l.onEmptyPoll()
}

// askQueueEmpty asks the hook, if there is one and it answers.
func (l *loop[T]) askQueueEmpty() (wait time.Duration, stop, ok bool) {
	f := l.options.QueueEmpty
	if f == nil {
		return 0, false, false
	}
	ok = l.hooks.Contain("QueueEmpty", func() { wait, stop = f(l.empties) })
	return wait, stop, ok
}

// failed decides what follows an error: never an end of the loop, but of the whole
// listener if nothing ever worked and waiting cannot help.
func (l *loop[T]) onError(err error) time.Duration {
	if l.requests.Err() != nil {
		return 0 // cut off by the stop
	}
	err = hint(err)
	if !l.worked() && (errors.Is(err, queue.ErrUnauthorized) || errors.Is(err, queue.ErrInvalid)) {
		l.fail(err)
		return maxErrorWait // until Run has heard of it and stops the loops
	}
	l.report.poll(err)
	if l.errors == nil {
		l.errors = l.newErrorWaits()
	}
	return l.errors.NextBackOff()
}

// hint adds what to do, where a listener knows more than its queue.
func hint(err error) error {
	e := (*queue.Error)(nil)
	if !errors.As(err, &e) {
		return err
	}
	c := *e
	switch {
	case errors.Is(err, queue.ErrQueueMissing): // whatever the queue says of it
		c.Hint = fmt.Sprintf("waiting for it: make it with «millrace create %s» or set Options.Create, or check the name and the account", c.Queue.Queue)
	case errors.Is(err, queue.ErrUnauthorized) && e.Hint == "":
		c.Hint = "check the key or the role: a listener needs to read, add, update and process messages"
	default:
		return err
	}
	return &c
}

// pause waits, or returns early when the listener stops or, as woken, when there is a
// reason to poll. After an error nothing wakes it (L-16): the reason is remembered, and
// worth a poll when the pause is over.
func (l *loop[T]) sleep(ctx context.Context, d time.Duration) (woken bool) {
	if d <= 0 {
		return false
	}
	wake := l.wake.now
	if l.errors != nil {
		wake = nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-wake:
		return true
	case <-ctx.Done():
	}
	return false
}

// idleNow returns the Idle in force, with a new curve when it has changed. A loop that
// finds it changed wakes the next, which may sleep by the old one: were only one loop told
// it could end, and the others sleep on for as long as they used to.
func (l *loop[T]) currentIdle() *Idle {
	if now := l.session.idle.Load(); now != l.setting {
		if l.setting != nil {
			l.wake.signal()
		}
		l.setting, l.curve = now, l.newCurve(now)
	}
	return l.setting
}

// newCurve returns the waits after empty polls.
func (l *loop[T]) newCurve(idle *Idle) backoff.BackOff {
	own := scaling.CurveFrom(idle.Min, idle.Max, func(n int) int {
		return int(l.nextJitter() * float64(n))
	})
	if idle.New != nil {
		return guardCurve(l.hooks, idle.New, own)
	}
	return own
}

// draw returns the next number of [0, 1) for the waits of the loops. They share one
// series, which differs between processes by its seed: were it one a loop, which
// loop polls first would matter, and a run could not be repeated.
func (s *session[T]) nextJitter() float64 { return jitter.Of(s.key, int(s.jitters.Add(1))) }

// newErrorWaits returns the waits after errors in a row, spread by how many such rows there
// were before: like the draws they do not depend on which loop it is.
func (s *session[T]) newErrorWaits() backoff.BackOff {
	first := min(max(s.idle.Load().Min, firstErrorWait), maxErrorWait)
	return retry.Waits(fmt.Sprintf("%s/%d", s.key, s.errorSeries.Add(1)), first, maxErrorWait)
}

func (s *session[T]) newLoop() *loop[T] {
	l := &loop[T]{session: s}
	l.currentIdle()
	return l
}
