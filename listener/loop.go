package listener

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/metered"
)

// After an error a loop waits within these bounds, growing, and ignores its idle curve.
const (
	firstErrorWait = 100 * time.Millisecond
	maxErrorWait   = 30 * time.Second
)

// errorsInARow is after how many errors events go to other instances.
const errorsInARow = 2

// minHookWait keeps a QueueEmpty hook that returns nearly zero from polling in a busy loop.
const minHookWait = time.Millisecond

// If a limit holds a dequeue back, the loop waits as long as the limit says, within these bounds,
// and then up to a tenth longer: loops that were refused together do not ask together. The spread
// is bounded, because the limit may lose what it allows if no loop asks for it soon.
const (
	minLimitWait   = time.Millisecond
	maxLimitWait   = 30 * time.Second
	maxLimitSpread = 100 * time.Millisecond
)

// longLimit is the shortest wait that sends events to other instances, which may have room.
const longLimit = time.Second

// listenWithin is how long a loop waits until events reach the listener again.
const listenWithin = 100 * time.Millisecond

// A batch waits this long for a reading of the flag that pauses the workers, but for no more than a
// quarter of its leases.
const flagWithin = 2 * time.Second

// loop is one dequeue goroutine. Only that goroutine uses its fields. The owner decides when it may
// fetch, sleep, and end; the loop knows how long to wait.
type loop struct {
	*session
	woken   chan struct{} // buffered, one: the owner wakes the loop
	empties int           // empty polls in a row
	risen   int           // of these, the ones with the present setting: how far the curve of waits has risen
	setting *Idle         // that the loop saw last
	phased  bool          // its polls are spread over the period of the fleet: see fleetWait
	errors  *retry.Waits  // waits after errors in a row; nil before the first
	failed  int           // errors in this row
	created bool          // it created the queue, and no dequeue has succeeded since
	found   int           // dequeues in a row that found messages
	short   int           // dequeues in a row that found fewer messages than they asked for
	limited bool          // a limit held back its last dequeue
}

func (s *session) newLoop() *loop {
	l := &loop{session: s, woken: make(chan struct{}, 1)}
	l.currentIdle()
	return l
}

// ask tells the owner of an event of this loop, and reports which of two actions it answers with.
func (l *loop) ask(e event, one, other verb) (is, isOther bool) {
	_, a := l.decide(l, e)
	l.followUp(a.rest)
	return a.is(one), a.is(other)
}

// run dequeues until the loop ends: when the listener stops, when more loops run than Loops.Max or
// a controller allows, or when an empty poll finds that it may end.
func (l *loop) run(ctx context.Context) {
	l.report.debug("loop started")
	for woken := false; ; {
		_, a := l.decide(l, event{what: turn, woken: woken})
		l.followUp(a.rest)
		if a.is(end) {
			return
		}
		if pause, lingers := a.with(linger); lingers {
			waiting.For(pause.d, ctx.Done())
			continue
		}
		if woken = false; a.is(park) {
			l.await(ctx, 0)
			continue
		}
		reserved := l.dispatcher.Reserve(ctx)
		if reserved == 0 {
			continue // ctx has ended
		}
		l.listenAgain(ctx)
		wait, ended := l.poll(reserved)
		if ended {
			return
		}
		woken = l.sleep(ctx, wait)
	}
}

// listenAgain says that there is room again, after a while without room, before the second dequeue
// of a busy period, and waits for a moment until events come. So that dequeue is the last one if it
// finds nothing. If it finds work the queue has a backlog: then the source is told when that is
// done.
func (l *loop) listenAgain(ctx context.Context) {
	if l.options.Wakeups == nil || l.found != 1 || l.errors != nil || l.dispatcher.Outage() {
		return
	}
	if waits, _ := l.ask(event{what: room}, park, end); waits {
		l.await(ctx, listenWithin)
		l.tell(event{what: met})
	}
}

// poll sends one dequeue and returns how long to wait, and whether the loop has ended.
func (l *loop) poll(reserved int) (wait time.Duration, ended bool) {
	now, may, err := l.mayDequeue()
	if !may {
		l.dispatcher.Release(reserved)
		return 0, false
	}
	visibility := l.dispatcher.Visibility()
	// Taken before the request: a lower bound for when the service begins to count.
	asked := time.Now()
	var batch []queue.Message
	if err == nil {
		batch, err = l.queue.Dequeue(l.request(), reserved, visibility)
		if after, limited := retry.Limited(err); limited {
			return l.onLimited(after, reserved, now.served), false
		}
		l.limited = false
		l.observe(reserved, batch, time.Since(asked), err)
	}
	missing, emptyAfter := errors.Is(err, queue.ErrQueueMissing), l.options.emptyAfter(l.queue)
	after, follows := l.decide(l, event{
		what: answered, asked: reserved, got: len(batch), emptyAfter: emptyAfter, first: l.found == 0,
		err: err, missing: missing, throttled: errors.Is(err, queue.ErrThrottled),
	})
	paused := after.pauses&queuePauses != 0
	if follows.is(park) {
		l.followUp(follows.rest)
		follows.rest = nil
		paused = l.awaitFlag(visibility)
	}
	if paused {
		l.dispatcher.GiveBack(batch, reserved, asked, visibility)
	} else {
		l.dispatcher.Dispatch(batch, reserved, asked, visibility)
	}
	l.followUp(follows.rest)
	if l.short++; err != nil || len(batch) == reserved || emptyAfter == 0 || paused {
		l.short = 0
	}
	switch {
	case missing:
		return l.onQueueMissing(err)
	case err != nil:
		return l.onError(err), false
	}
	l.errors, l.created = nil, false
	if len(batch) == 0 {
		return l.onEmptyPoll(true, now.heard)
	}
	l.report.debug("batch received", slog.Int("messages", len(batch)))
	l.rates.received()
	l.changed()
	l.empties, l.risen, l.found, l.phased = 0, 0, l.found+1, false
	if l.short > 0 && l.short >= emptyAfter && l.options.Fetch.QueueEmpty == nil {
		ended, _ = l.ask(event{what: emptied, short: true, seen: now.heard}, end, again)
	}
	return 0, ended
}

// awaitFlag waits for the reading of the flag, and reports whether the batch must be given back. If
// the reading fails or takes too long, nothing has changed.
func (l *loop) awaitFlag(visibility time.Duration) (paused bool) {
	for {
		late := !l.await(l.looping, min(flagWithin, visibility/4))
		now, follows := l.decide(l, event{what: waits, late: late})
		if !follows.is(park) {
			return now.pauses&queuePauses != 0 || now.stopping
		}
	}
}

// mayDequeue asks whether a dequeue may be sent, and reads the metadata first if they are due. It
// returns the state in which the owner allowed the dequeue. An error stands for an error of the
// dequeue.
func (l *loop) mayDequeue() (now state, may bool, err error) {
	for {
		now, a := l.decide(l, event{what: begins})
		if a.is(release) {
			return now, false, nil
		}
		due, reads := a.with(readMetadata)
		if !reads {
			return now, true, nil
		}
		if err := l.readMetadata(due.on); err != nil {
			return now, true, err
		}
	}
}

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

// onEmptyPoll decides about the next step after an empty poll. Seen is state.heard before it. Found
// is false if the queue is missing: loops do not rely on events then, so that the state soon shows
// when the queue is there.
func (l *loop) onEmptyPoll(found bool, seen uint64) (wait time.Duration, ended bool) {
	l.empties, l.found = l.empties+1, 0
	wait, stop, hooked := l.askQueueEmpty()
	if found && (stop || !hooked) {
		if ends, polls := l.ask(event{what: emptied, seen: seen}, end, again); ends || polls {
			return 0, ends
		}
	}
	if hooked {
		if stop && l.endsIdle() {
			return 0, true // without waiting
		}
		if wait <= 0 {
			wait = l.snapshot().idle.Min
		}
		return max(wait, minHookWait), false
	}
	idle := l.currentIdle()
	wait = l.curveWait(idle)
	if wait < idle.Max {
		return wait, false
	}
	if l.endsIdle() {
		return 0, true
	}
	return l.fleetWait(idle), false
}

func (l *loop) endsIdle() bool {
	ends, _ := l.ask(event{what: idled}, end, again)
	return ends
}

// onQueueMissing decides about the next step if the queue does not exist: it is created if the
// options say so, and otherwise treated as empty.
func (l *loop) onQueueMissing(err error) (wait time.Duration, ended bool) {
	if l.options.Create && !l.created {
		err = l.queue.Create(metered.WithCause(l.requests, metered.CauseCreate), nil)
		if err == nil || errors.Is(err, queue.ErrQueueExists) {
			l.report.info("queue created")
			l.errors, l.created = nil, true
			return 0, false
		}
		return l.onError(err), false
	}
	l.errors, l.created = nil, false
	l.report.poll(hint(err))
	return l.onEmptyPoll(false, 0)
}

// askQueueEmpty calls the QueueEmpty hook. ok is false without a hook, or if it panics.
func (l *loop) askQueueEmpty() (wait time.Duration, stop, ok bool) {
	f := l.options.Fetch.QueueEmpty
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
	if l.snapshot().polls == 0 && (errors.Is(err, queue.ErrUnauthorized) || errors.Is(err, queue.ErrInvalid)) {
		l.fail(err)
		return maxErrorWait // until Run stops the loops
	}
	l.report.poll(err)
	if l.errors == nil {
		l.errors, l.failed = l.newErrorWaits(), 0
	}
	if l.failed++; l.failed == errorsInARow {
		l.tell(event{what: failing})
	}
	return l.errors.After(err)
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

// onLimited returns how long to wait after a dequeue that a limit held back for so long. The slots are given
// back, because others may share them. owed says whether that dequeue would have served a reason to
// poll.
func (l *loop) onLimited(after time.Duration, reserved int, owed bool) time.Duration {
	l.limited = true
	l.dispatcher.Release(reserved)
	wait := min(max(after, minLimitWait), maxLimitWait)
	l.tell(event{what: refused, owed: owed, long: wait >= longLimit})
	return wait + time.Duration(l.jitters.forWait()*float64(min(wait/10, maxLimitSpread)))
}

// sleep waits. It returns early when the listener stops, and, with woken set, when there is a
// reason to poll. After an error, and while a limit holds the dequeues back, nothing wakes it: the
// signal stays pending until the wait is over.
func (l *loop) sleep(ctx context.Context, d time.Duration) (woken bool) {
	switch {
	case d <= 0:
		return false
	case l.errors != nil || l.limited:
		waiting.For(d, ctx.Done())
		return false
	}
	if _, woken := l.ask(event{what: sleeps}, goToSleep, again); woken {
		return true
	}
	return l.await(ctx, d)
}

// await waits until the owner wakes the loop, until d has passed if it is positive, or until ctx
// ends.
func (l *loop) await(ctx context.Context, d time.Duration) (woken bool) {
	var over <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-l.woken:
		return true
	case <-over:
	case <-ctx.Done():
	}
	return l.awaken(l)
}

// currentIdle returns the Idle in force. If it has changed, its curve starts over. A loop that sees
// the change wakes the next one, which may be in a long sleep by the old Idle.
func (l *loop) currentIdle() *Idle {
	if now := l.snapshot().idle; now != l.setting {
		if l.setting != nil {
			l.tell(event{what: noticed})
		}
		l.setting, l.risen, l.phased = now, 0, false
	}
	return l.setting
}

// newErrorWaits returns the waits after consecutive errors. Their jitter depends on how many
// such series there were before, and not on the loop.
func (l *loop) newErrorWaits() *retry.Waits {
	first := min(max(l.snapshot().idle.Min, firstErrorWait), maxErrorWait)
	return retry.NewWaits(fmt.Sprintf("%s/%d", l.jitters.key, l.jitters.errors.Add(1)), first, maxErrorWait)
}
