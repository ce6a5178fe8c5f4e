package listener

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// After an error a loop waits within these bounds, growing, whatever its idle curve says.
const (
	firstErrorWait = 100 * time.Millisecond
	maxErrorWait   = 30 * time.Second
)

// errorsInARow is after how many errors events go to other instances.
const errorsInARow = 2

// minHookWait keeps a QueueEmpty hook that returns zero from polling in a busy loop.
const minHookWait = time.Millisecond

// loop is one dequeue goroutine. Only that goroutine uses its fields.
type loop struct {
	*session
	empties int          // empty polls in a row
	setting *Idle        // for which curve was made
	curve   BackOff      // waits after empty polls
	phased  bool         // its polls are spread over those of the fleet: see fleetWait
	errors  *retry.Waits // waits after errors in a row; nil before the first
	failed  int          // errors in this row
	created bool         // it created the queue, and no dequeue has succeeded since
	seen    uint64       // what had been heard when its last dequeue was sent
	found   int          // dequeues in a row that found messages
	limited bool         // a limit held back its last dequeue
}

// run dequeues until the loop ends: when the listener stops, when more loops run than Loops.Max
// or a controller allows (stopIfExcess), or when an empty poll finds that it may end (onEmptyPoll, tryStop).
func (l *loop) run(ctx context.Context) {
	for {
		if l.awaitResume(ctx) {
			return
		}
		reserved := l.dispatcher.Reserve(ctx)
		if reserved == 0 {
			break
		}
		l.listenAgain(ctx)
		if ctx.Err() != nil {
			l.dispatcher.Release(reserved)
			break
		}
		wait, leave := l.poll(reserved)
		if leave {
			return
		}
		woken := l.sleep(ctx, wait)
		if l.stopIfExcess() {
			if woken { // the signal is for another loop
				l.wake.signal()
			}
			return
		}
	}
	l.pool.stopped()
}

// poll sends one dequeue and returns how long to wait, and whether the loop has left the pool.
func (l *loop) poll(reserved int) (wait time.Duration, leave bool) {
	if !l.mayFetch() { // since the slots were awaited
		l.dispatcher.Release(reserved)
		return 0, false
	}
	err := l.readMetadata()
	if err == nil && !l.mayFetch() { // since the metadata were asked for
		l.dispatcher.Release(reserved)
		return 0, false
	}
	visibility := l.dispatcher.Visibility()
	// Taken before the request: a lower bound for when the service begins to count.
	asked := time.Now()
	var batch []queue.Message
	if err == nil {
		var owed bool
		l.seen, owed = l.pool.beginPoll()
		batch, err = l.queue.Dequeue(l.request(), reserved, visibility)
		if limit := limitOf(err); limit != nil {
			return l.onLimited(limit, reserved, owed), false
		}
		l.limited = false
		l.observe(reserved, batch, time.Since(asked), err)
	}
	l.health.polled(err)
	l.dispatcher.Dispatch(batch, reserved, asked, visibility)
	if errors.Is(err, queue.ErrQueueMissing) {
		return l.onQueueMissing(err)
	}
	l.control(reserved, len(batch), err)
	if err != nil {
		return l.onError(err), false
	}
	l.errors, l.created = nil, false
	l.polled(len(batch))
	if len(batch) == 0 {
		return l.onEmptyPoll(true)
	}
	l.empties, l.found = 0, l.found+1
	l.curve.Reset()
	l.phased = false
	l.pool.found()
	full := len(batch) >= reserved
	more := full && int64(reserved) >= l.fullBatch.Load() // the queue may have more
	if !l.pauses.paused() {
		if !l.lookedOnly(full && !more) {
			more = l.rescale(len(batch), full, more)
		}
		l.readFlagBesideFetch() // after rescale, whose reading of the depth is as good
	}
	if more {
		l.wakeAnother()
	}
	return 0, false
}

// lookedOnly reports whether the dequeue was for the few shared slots that an idle listener may take, and
// was the first to find messages. That it was full means little: the next one, for more, tells whether the
// load calls for a reading of the depth.
func (l *loop) lookedOnly(small bool) bool { return small && l.found == 1 && l.options.Slots != nil }

// request returns the context of the next dequeue. A queue may give one that follows an error
// more time: the time before may have been too short.
func (l *loop) request() context.Context {
	if l.errors == nil {
		return l.fetches
	}
	return retry.Repeated(l.fetches, l.failed)
}

func (l *loop) observe(asked int, batch []queue.Message, took time.Duration, err error) {
	o := &l.options.Observer
	if o.Polled != nil {
		o.Polled(Poll{Queue: l.queue.Name(), Asked: asked, Got: len(batch), Took: took, Err: err})
	}
	if o.Received != nil && len(batch) > 0 {
		o.Received(batch)
	}
}

// onEmptyPoll decides what follows an empty poll. Without a queue none is found: the loops do not rely on
// events then, so that the state soon shows that it is there.
func (l *loop) onEmptyPoll(found bool) (wait time.Duration, leave bool) {
	l.empties, l.found = l.empties+1, 0
	l.scaler.markIdle()
	wait, stop, hooked := l.askQueueEmpty()
	if found {
		l.setReady(true)
	}
	if found && (stop || !hooked) {
		if left, again := l.leave(l.seen); left || again {
			return 0, left
		}
	}
	if hooked {
		if stop && l.tryStop() {
			return 0, true // at once, without waiting
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
	return l.fleetWait(idle), false
}

// onQueueMissing decides what follows a dequeue from a queue that does not exist: it is created
// if the options say so, and otherwise treated as empty.
func (l *loop) onQueueMissing(err error) (wait time.Duration, leave bool) {
	l.metadata.forget()
	if l.options.Create && !l.created {
		err = l.queue.Create(queue.WithCause(l.requests, queue.CauseCreate), nil)
		if err == nil || errors.Is(err, queue.ErrQueueExists) {
			l.report.info("queue created")
			l.errors, l.created = nil, true
			return 0, false
		}
		return l.onError(err), false
	}
	l.errors, l.created = nil, false
	l.report.poll(hint(err))
	return l.onEmptyPoll(false)
}

// askQueueEmpty calls the QueueEmpty hook. ok is false if there is none or it fails.
func (l *loop) askQueueEmpty() (wait time.Duration, stop, ok bool) {
	f := l.options.QueueEmpty
	if f == nil {
		return 0, false, false
	}
	ok = l.hooks.Call("QueueEmpty", func() { wait, stop = f(l.empties) })
	return wait, stop, ok
}

// onError returns how long to wait after an error. It never ends the loop. It ends the listener
// if no dequeue ever succeeded and waiting cannot help.
func (l *loop) onError(err error) time.Duration {
	if l.requests.Err() != nil {
		return 0 // cancelled by the stop
	}
	err = hint(err)
	if !l.worked() && (errors.Is(err, queue.ErrUnauthorized) || errors.Is(err, queue.ErrInvalid)) {
		l.fail(err)
		return maxErrorWait // until Run stops the loops
	}
	l.report.poll(err)
	if l.errors == nil {
		l.errors, l.failed = l.newErrorWaits(), 0
	}
	if l.failed++; l.failed == errorsInARow {
		l.passOn(true)
	}
	return l.errors.Next()
}

// hint adds advice where a listener knows more than its queue.
func hint(err error) error {
	e := (*queue.Error)(nil)
	if !errors.As(err, &e) {
		return err
	}
	c := *e
	switch {
	case errors.Is(err, queue.ErrQueueMissing): // replaces the hint of the queue
		c.Hint = fmt.Sprintf("waiting for it: make it with «millrace create %s» or set Options.Create, or check the name and the account", c.Queue.Queue)
	case e.Op == "properties": // of the reading of metadata, before which nothing is dequeued
		c.Hint = "nothing is dequeued until the metadata are known"
		if errors.Is(err, queue.ErrUnauthorized) {
			c.Hint = "Options.Metadata needs the permission to read the properties of the queue"
		}
		if e.Hint != "" {
			c.Hint += "; " + e.Hint
		}
	case errors.Is(err, queue.ErrUnauthorized) && e.Hint == "":
		c.Hint = "check the key or the role: a listener needs to read, add, update and process messages"
	default:
		return err
	}
	return &c
}

// sleep waits. It returns early when the listener stops, and, with woken set, when there is a
// reason to poll. After an error, and while a limit holds the dequeues back, nothing wakes it: the
// signal stays pending until the wait is over.
func (l *loop) sleep(ctx context.Context, d time.Duration) (woken bool) {
	if d <= 0 {
		return false
	}
	wake := l.wake.now
	if l.errors != nil || l.limited {
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

// currentIdle returns the Idle in force, with a new curve if it has changed. A loop that sees
// the change wakes the next one, which may be in a long sleep by the old Idle.
func (l *loop) currentIdle() *Idle {
	if now := l.session.idle.Load(); now != l.setting {
		if l.setting != nil {
			l.wake.signal()
		}
		l.setting, l.curve, l.phased = now, l.newCurve(now), false
	}
	return l.setting
}

// newCurve returns the curve of waits after empty polls.
func (l *loop) newCurve(idle *Idle) BackOff {
	own := scaling.CurveFrom(idle.Min, idle.Max, func(n int) int {
		return int(l.nextJitter() * float64(n))
	})
	if idle.New != nil {
		return guardCurve(l.hooks, idle.New, own)
	}
	return own
}

// nextJitter returns the next jitter in [0, 1) for the curves of the loops. They share one
// series, which depends on the seed and so differs between processes. With a series per loop it
// would matter which loop polls first, and a run could not be repeated.
func (s *session) nextJitter() float64 { return waiting.Jitter(s.key, int(s.jitters.Add(1))) }

// nextSpread returns the next jitter in [0, 1) for waits of Idle.Max. Its series is its own: loops that
// poll at one instant draw from the other first, and how many draw in between would be a race.
func (s *session) nextSpread() float64 { return waiting.Jitter(s.key+"/spread", int(s.spreads.Add(1))) }

// newErrorWaits returns the waits after consecutive errors. Their jitter depends on how many
// such series there were before, and like nextJitter not on the loop.
func (s *session) newErrorWaits() *retry.Waits {
	first := min(max(s.idle.Load().Min, firstErrorWait), maxErrorWait)
	return retry.NewWaits(fmt.Sprintf("%s/%d", s.key, s.errorSeries.Add(1)), first, maxErrorWait)
}

func (s *session) newLoop() *loop {
	l := &loop{session: s}
	l.currentIdle()
	return l
}
