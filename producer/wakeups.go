package producer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// publishTimeout bounds what a publisher may add to a Send: a hint is not worth more.
const publishTimeout = time.Second

// errHanging is why an event is not published.
var errHanging = errors.New("the publisher has not returned from an earlier event")

// wakeups publishes the events of a producer.
type wakeups struct {
	publisher wakeup.Publisher
	queue     queue.Queue
	onError   func(error)
	level     *level       // nil if every event is published
	hanging   atomic.Int64 // calls of the publisher that nobody waits for any more
}

// newWakeups returns nil if the options name no publisher.
func newWakeups[T any](q queue.Queue, o *Options[T]) *wakeups {
	if o.Wakeups == nil {
		return nil
	}
	w := &wakeups{publisher: o.Wakeups, queue: q, onError: o.OnWakeupError}
	if o.WakeupDepth > 0 {
		w.level = &level{depth: int64(o.WakeupDepth)}
	}
	return w
}

// wake publishes events for messages that are on the queue, or may be. It never fails: what goes wrong
// is reported. A nil w does nothing.
func (w *wakeups) wake(ctx context.Context, h hints) {
	if w == nil {
		return
	}
	if err := w.publish(ctx, h); err != nil && w.onError != nil {
		w.onError(fmt.Errorf("wake the workers of %v: %w", w.queue.Name(), err))
	}
}

// publish waits until the publisher has returned, but not beyond the deadline of ctx nor
// publishTimeout. Its goroutine lasts as long as the publisher hangs. Meanwhile no further call is
// made, so that these goroutines cannot pile up.
func (w *wakeups) publish(ctx context.Context, h hints) error {
	if w.hanging.Load() > 0 {
		return errHanging
	}
	// A caller who gave up, or whose time is over, still has a message on the queue.
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	wait := publishTimeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	result := make(chan error, 1)
	var settled atomic.Bool // by the first of the publisher's return and the deadline
	go func() {
		err := errors.New("the publisher called runtime.Goexit")
		defer cancel()
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("the publisher panicked: %v\n\n%s", v, debug.Stack())
			}
			if !settled.CompareAndSwap(false, true) {
				w.hanging.Add(-1)
			}
			result <- err
		}()
		err = w.events(own, h)
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err := <-result:
		return err
	case <-timer.C:
	}
	w.hanging.Add(1)
	if !settled.CompareAndSwap(false, true) { // it has just returned
		w.hanging.Add(-1)
		return <-result
	}
	if wait <= 0 {
		return nil // nobody can say that it hangs
	}
	return fmt.Errorf("the publisher has not returned within %v", wait)
}

// events publishes one event for what is visible now, if the depth has reached its level, and one
// for each time at which something becomes visible.
func (w *wakeups) events(ctx context.Context, h hints) (err error) {
	name := w.queue.Name()
	bytes, worth := h.bytes, h.now > 0
	if worth && w.level != nil {
		bytes, worth, err = w.level.reached(ctx, w.queue, h)
	}
	if worth {
		err = errors.Join(err, w.publisher.Publish(ctx, wakeup.Event{Queue: name, Bytes: bytes}))
	}
	for due, bytes := range h.later {
		if failed := w.publisher.Publish(ctx, wakeup.Event{Queue: name, Bytes: bytes, Due: due}); failed != nil {
			return errors.Join(err, failed) // the others would fail too
		}
	}
	return err
}

// hints is what events have to be published for.
type hints struct {
	now   int64               // messages that are visible
	bytes int64               // of these
	later map[time.Time]int64 // the bytes of the others, by when they become visible
}

// hint returns the hints for one message that was sent just now.
func hint(bytes int64, delay time.Duration) hints {
	if delay <= 0 {
		return hints{now: 1, bytes: bytes}
	}
	// The port rounds delays up. A worker that comes too early would find nothing.
	due := time.Now().Add((delay + time.Second - 1).Truncate(time.Second))
	return hints{later: map[time.Time]int64{due: bytes}}
}

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
func (l *level) reached(ctx context.Context, q queue.Queue, h hints) (bytes int64, reached bool, err error) {
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
	p, err := q.Properties(queue.WithCause(ctx, queue.CauseDepth))
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
