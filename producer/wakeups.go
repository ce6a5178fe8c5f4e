package producer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/wakeup"
)

// publishTimeout bounds what a publisher may add to a Send: a hint is not worth more.
const publishTimeout = time.Second

// Why events are not published.
var (
	errHanging = errors.New("the publisher has not returned from an earlier event")
	errExited  = errors.New("the publisher called runtime.Goexit")
)

// wakeups publishes the events of a producer.
type wakeups struct {
	publisher wakeup.Publisher
	queue     queue.Sender
	onError   func(error)
	depth     int64 // of a queue from which on events are published; 0 if every event is

	mu      sync.Mutex
	hanging int                   // calls of the publisher that nobody waits for any more; guarded by mu
	missed  collected             // of what was sent meanwhile; guarded by mu
	levels  map[queue.Name]*level // by queue, if there is a depth; guarded by mu
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

// wake publishes events for messages that are on the queue, or may be. It never fails: what goes wrong
// is reported.
func (w *wakeups) wake(ctx context.Context, all []hints) {
	if err := w.publish(ctx, all); err != nil && w.onError != nil {
		w.onError(fmt.Errorf("wake the workers of %v: %w", w.queue.Name(), err))
	}
}

// call is a call of the publisher. Both are guarded by wakeups.mu.
type call struct {
	returned  bool
	abandoned bool // nobody waits for it any more
}

// publish waits until the publisher has returned, but not beyond the deadline of ctx nor
// publishTimeout. Its goroutine lasts as long as the publisher hangs. Meanwhile no further call is
// made, so that these goroutines cannot pile up; what was missed is published when it has returned.
func (w *wakeups) publish(ctx context.Context, all []hints) error {
	if w.miss(all) {
		return errHanging
	}
	// A caller who gave up, or whose time is over, still has a message on the queue.
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	wait := publishTimeout
	if deadline, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(deadline))
	}
	result := make(chan error, 1)
	var c call
	go func() {
		err := errExited
		defer cancel()
		defer func() {
			missed := w.returned(&c)
			result <- err
			if len(missed) > 0 {
				_ = w.publish(context.Background(), missed) // each Send has reported its own
			}
		}()
		err = w.events(own, all)
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case err := <-result:
		return err
	case <-timer.C:
	}
	if !w.abandon(&c) { // it has just returned
		return <-result
	}
	if wait <= 0 {
		return nil // nobody can say that it hangs
	}
	return fmt.Errorf("the publisher has not returned within %v", wait)
}

// miss keeps the hints if the publisher hangs.
func (w *wakeups) miss(all []hints) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.hanging == 0 {
		return false
	}
	w.missed.add(all)
	return true
}

// returned records the end of a call. It returns what was missed if the publisher hangs no more.
func (w *wakeups) returned(c *call) (missed []hints) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c.returned = true
	if !c.abandoned {
		return nil
	}
	if w.hanging--; w.hanging == 0 {
		missed = w.missed.take()
	}
	return missed
}

// abandon records that nobody waits for a call any more, unless it has returned.
func (w *wakeups) abandon(c *call) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.returned {
		return false
	}
	c.abandoned = true
	w.hanging++
	return true
}

// events publishes the events of all queues, at the same time: what fails or hangs for one may work for
// another.
func (w *wakeups) events(ctx context.Context, all []hints) error {
	if len(all) == 1 {
		return w.tell(ctx, all[0])
	}
	errs := make([]error, len(all))
	var running sync.WaitGroup
	for i, h := range all {
		errs[i] = errExited
		running.Go(func() { errs[i] = w.tell(ctx, h) })
	}
	running.Wait()
	return errors.Join(errs...)
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
		err = errors.Join(err, w.publisher.Publish(ctx, wakeup.Event{Queue: h.queue, Bytes: bytes}))
	}
	for due, bytes := range h.later {
		if failed := w.publisher.Publish(ctx, wakeup.Event{Queue: h.queue, Bytes: bytes, Due: due}); failed != nil {
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
