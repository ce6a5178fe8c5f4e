package producer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// Wakeups carries hints that work has come to the workers, for [Options].Wakeups. A Bus and the
// transports of package wakeup are such publishers. Implementations must be safe for concurrent use.
type Wakeups interface {
	// Publish says that messages have come to a queue, or will be visible there at a later time,
	// due. The zero time means now. bytes is the size of the messages that the event stands for;
	// zero means unknown. Publish does not wait for workers, and returns when ctx ends. An error
	// goes to Options.OnWakeupError; the messages are in the queue all the same.
	Publish(ctx context.Context, q queue.Name, bytes int64, due time.Time) error
}

// publishTimeout bounds what a publisher may add to a Send: a hint is not worth more.
const publishTimeout = time.Second

// wakeups publishes the events of a producer.
type wakeups struct {
	publisher Wakeups
	queue     queue.Sender
	onError   func(error)
	depth     int64 // of a queue from which on events are published; 0 if every event is

	mu     sync.Mutex
	levels map[queue.Name]*level // by queue, if there is a depth; guarded by mu
}

// newWakeups returns nil if the options name no publisher.
func newWakeups[T any](q queue.Sender, o *Options[T]) *wakeups {
	if o.Wakeups == nil {
		return nil
	}
	return &wakeups{
		publisher: o.Wakeups, queue: q, onError: o.OnWakeupError,
		depth: int64(o.WakeupDepth), levels: make(map[queue.Name]*level),
	}
}

// wake publishes events for messages that are on the queue, or may be. It takes publishTimeout at most,
// and no longer than the deadline of ctx. A cancelled ctx does not end it, because the messages of a
// caller who gave up are on the queue. It never fails: errors are reported.
func (w *wakeups) wake(ctx context.Context, all []hints) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok {
		own, cancel = context.WithDeadline(own, deadline)
		defer cancel()
	}
	// All queues at the same time: a failing or slow one must not hold up another.
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, h := range all {
		running.Go(func() { errs[i] = w.tell(own, h) })
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil && w.onError != nil {
		w.onError(fmt.Errorf("wake the workers of %v: %w", w.queue.Name(), err))
	}
}

// tell publishes the events of one queue.
func (w *wakeups) tell(ctx context.Context, h hints) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the publisher panicked: %v\n\n%s", v, debug.Stack())
		}
	}()
	if err = w.eventsOf(ctx, h); err != nil && h.queue != w.queue.Name() {
		return fmt.Errorf("%v: %w", h.queue, err)
	}
	return err
}

// eventsOf publishes one event for what is visible now, if the depth has reached its level, and one
// for each time at which something becomes visible.
func (w *wakeups) eventsOf(ctx context.Context, h hints) (err error) {
	bytes, worth := h.bytes, h.now > 0
	if worth && w.depth > 0 {
		bytes, worth, err = w.level(h.queue).reached(ctx, w.queue, h)
	}
	if worth {
		err = errors.Join(err, w.publisher.Publish(ctx, h.queue, bytes, time.Time{}))
	}
	for due, bytes := range h.later {
		if failed := w.publisher.Publish(ctx, h.queue, bytes, due); failed != nil {
			return errors.Join(err, failed) // the others would fail too
		}
	}
	return err
}

func (w *wakeups) level(name queue.Name) *level {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.levels[name]
	if l == nil {
		l = &level{depth: w.depth}
		w.levels[name] = l
	}
	return l
}

// hints is what events have to be published for, of one queue.
type hints struct {
	queue queue.Name
	now   int64               // messages that are visible
	bytes int64               // of these
	later map[time.Time]int64 // the bytes of the others, by when they become visible
}

// hintsFor returns the hints for a message that was sent just now, for every queue that it may be in.
func hintsFor(s *Sending) []hints {
	all := make([]hints, len(s.where))
	for i, name := range s.where {
		all[i] = hints{queue: name}
		if s.Delay <= 0 {
			all[i].now, all[i].bytes = 1, s.bytes
			continue
		}
		// The port rounds delays up. A worker that comes too early would find nothing.
		due := time.Now().Add((s.Delay + time.Second - 1).Truncate(time.Second))
		all[i].later = map[time.Time]int64{due: s.bytes}
	}
	return all
}

// wakeInterval is how long the first message without an event waits for one while a SendAll runs.
const wakeInterval = time.Second

// collector collects the hints of one SendAll.
type collector struct {
	wakeups *wakeups
	dirty   chan struct{} // holds an element when there are hints

	mu    sync.Mutex
	hints map[queue.Name]*hints // guarded by mu
}

// add adds hints. All jobs that become visible in the same second have one event of their queue.
func (c *collector) add(_ context.Context, all []hints) {
	c.mu.Lock()
	for _, more := range all {
		h := c.hints[more.queue]
		if h == nil {
			h = &hints{queue: more.queue, later: make(map[time.Time]int64)}
			c.hints[more.queue] = h
		}
		h.now += more.now
		h.bytes += more.bytes
		for due, bytes := range more.later {
			h.later[due.Add(time.Second-1).Truncate(time.Second)] += bytes
		}
	}
	c.mu.Unlock()
	waiting.Signal(c.dirty, struct{}{})
}

func (c *collector) publish(ctx context.Context) {
	c.mu.Lock()
	all := make([]hints, 0, len(c.hints))
	for _, h := range c.hints {
		all = append(all, *h)
	}
	clear(c.hints)
	c.mu.Unlock()
	if len(all) > 0 {
		c.wakeups.wake(ctx, all)
	}
}

// run publishes once in an interval, until ended is closed: a sequence may be endless.
func (c *collector) run(ctx context.Context, ended <-chan struct{}) {
	for {
		select {
		case <-c.dirty:
		case <-ended:
			return
		}
		if !waiting.For(wakeInterval, ended) {
			return
		}
		c.publish(ctx)
	}
}

// readTimeout bounds the reading of the depth. It leaves time for an event if that fails.
const readTimeout = publishTimeout / 2

// level decides which events are published if only depths from a level on are worth one.
type level struct {
	depth int64

	mu    sync.Mutex
	wait  int64 // messages until the depth is read; guarded by mu
	bytes int64 // of the messages since the last event; guarded by mu
}

// reached reports whether the depth has reached the level, and returns the bytes of the messages since
// the last time. The depth is read when enough messages were sent since the last reading to have
// reached the level, had nobody else sent any. A queue whose depth stays just below the level is read
// once in a tenth of the level.
func (l *level) reached(ctx context.Context, q queue.Sender, h hints) (bytes int64, reached bool, err error) {
	l.mu.Lock()
	l.bytes += h.bytes
	l.wait -= h.now
	read := l.wait <= 0
	if read {
		l.wait = l.depth // others that are sent during the reading do not read
	}
	l.mu.Unlock()
	if !read {
		return 0, false, nil
	}
	ctx, cancel := context.WithTimeout(request.WithCause(ctx, request.CauseDepth), readTimeout)
	defer cancel()
	p, err := depthOf(ctx, q, h.queue)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && p.Depth < l.depth {
		meanwhile := l.depth - l.wait
		l.wait = max(l.depth-p.Depth, (l.depth+9)/10) - meanwhile
		return 0, false, nil
	}
	if err != nil { // an event too many costs less than one too few
		err = fmt.Errorf("read the depth: %w", err)
	}
	bytes, l.bytes = l.bytes, 0
	return bytes, true, err
}
