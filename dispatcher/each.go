package dispatcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Each returns a handler that handles several jobs of a group at once: producer.SendGroup sends
// several jobs in one message. The concurrency is that of one group, beside those in the other slots;
// less than 1 counts as 1. A handler that is not made by Each handles the jobs of a group one after
// the other. A job that is in no group is handled alike with Each and without.
//
// Every item of a group is a job of its own for the handler: it has its own message, with Item and
// Items set, context, time-out and result, and its failure harms no other. The message of the group
// has one slot, one lease and one settlement:
//
//   - It is deleted when every item has succeeded or was discarded.
//   - An item that failed, or asked for [Retry], makes it come again, for what is left only: the items
//     that are done are recorded in the message. The attempts are those of the message.
//   - An item that asked for [Snooze], or that was interrupted, makes it come again without an attempt,
//     unless another one failed.
//   - An item that asked for [Poison], cannot be decoded, or failed at the last attempt is not handled
//     any more. When all others are done the message is moved to the poison queue, once, and a redrive
//     handles these items only.
//
// The delay is that of the first item whose result decides.
//
// What is done is recorded whenever the text must be sent anyway: by renewals, by Message.Save and
// when the message is given back. A worker that dies therefore repeats what was done since the last
// renewal.
//
// Each belongs inside of [All] and outside of [Batch], which then collects items. What is outside of
// it, such as interceptors and [Middleware], sees a group once, as its first item that is left;
// without Each it sees every item. If it returns another result than that of Each, that is the result
// of all items that are not done, and an error in place of nil that of all that were handled. Items
// whose handlers were not called because the context ended are handled at a later delivery, whatever
// it returns.
func Each[T any](h Handler[T], concurrency int) Handler[T] {
	e := &each[T]{handler: h, concurrency: max(concurrency, 1)}
	return e.handle
}

// each handles the items of groups.
type each[T any] struct {
	handler     Handler[T]
	concurrency int
}

func (e *each[T]) handle(ctx context.Context, m *Message[T]) error {
	if m.delivery == nil || m.delivery.running.group == nil {
		return e.handler(ctx, m)
	}
	v, g := m.delivery, m.delivery.running.group
	return g.eachItem(ctx, e, m.Item, e.concurrency, func(ctx context.Context, item int) {
		one := &typedItem[T]{job: v, message: m}
		if item != m.Item {
			h, ok := g.beginItem(item)
			if !ok {
				return
			}
			one = h.(*typedItem[T])
		}
		g.handleItem(ctx, item, one, func(ctx context.Context) error { return e.handler(ctx, one.message) })
	})
}

// typedItem is an item of a group with jobs of type T. It implements handling.
type typedItem[T any] struct {
	job     *typedJob[T]
	message *Message[T]
}

func (i *typedItem[T]) ownTimeout() time.Duration { return i.job.timeoutOf(i.message) }

func (i *typedItem[T]) callHandler(ctx context.Context) error {
	return i.job.jobs.Handler(ctx, i.message)
}

func (v *typedJob[T]) decodeItem(item int) (handling, error) {
	g := v.running.group
	// A copy: the handler may change in place what a codec does not copy, and another item may save.
	body, err := v.decodeJob(bytes.Clone(g.item(item)))
	if err != nil {
		return nil, err
	}
	m := v.newMessage(body, g.head)
	m.Item, m.Items = item, len(g.results)
	return &typedItem[T]{v, &m}, nil
}

// saveItem implements Message.Save for an item of a group.
func (v *typedJob[T]) saveItem(ctx context.Context, item int, body T) error {
	g := v.running.group
	if item < 0 || item >= len(g.results) {
		return fmt.Errorf("the group has no item %d", item)
	}
	encoded, err := v.encode(body)
	if err != nil {
		return err
	}
	select {
	case g.saving <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-g.saving }()
	g.mu.Lock()
	items := slices.Clone(g.items)
	g.mu.Unlock()
	items[item] = bytes.Clone(encoded) // the handler may change it later
	if err := v.save(ctx, items.Encode()); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.items = items
	return nil
}

// itemContext is the context of the handler of an item. Its time-out is its own, and ends no other
// item.
type itemContext struct {
	context.Context
	delivery *delivery
	item     int
	cancel   context.CancelCauseFunc

	mu       sync.Mutex
	timer    *time.Timer // nil without a time-out; guarded by mu
	deadline time.Time   // zero for none; guarded by mu
	overdue  time.Time   // when its time-out passed; zero if it has not; guarded by mu
}

// newItemContext returns a context for the handler of an item. A time-out of zero or less means none.
func newItemContext(parent context.Context, v *delivery, item int, timeout time.Duration) *itemContext {
	ctx, cancel := context.WithCancelCause(parent)
	c := &itemContext{Context: ctx, delivery: v, item: item, cancel: cancel}
	if timeout > 0 {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.deadline = time.Now().Add(timeout)
		c.timer = time.AfterFunc(timeout, c.expire)
	}
	return c
}

// expire ends the context because the time-out has passed. A handler that then does not return is
// reported as stuck, like any other.
func (c *itemContext) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil { // it was stopped
		return
	}
	c.overdue = time.Now()
	c.cancel(ErrTimeout)
	c.delivery.dispatcher.leases.itemOverdue(&c.delivery.lease, c.overdue)
}

// withoutTimeout ends the time-out, because the handler turned out to handle all items.
func (c *itemContext) withoutTimeout() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
		c.timer, c.deadline = nil, time.Time{}
	}
}

// end ends the context when the handler has returned. It returns why it had ended before, if it had.
func (c *itemContext) end() (cause error) {
	c.withoutTimeout()
	c.mu.Lock()
	defer c.mu.Unlock()
	cause = context.Cause(c.Context)
	c.cancel(nil)
	if !c.overdue.IsZero() {
		c.delivery.dispatcher.leases.itemReturned(&c.delivery.lease, c.overdue)
	}
	return cause
}

// Deadline returns the end of the time-out.
func (c *itemContext) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deadline, !c.deadline.IsZero()
}

// Err returns context.DeadlineExceeded after the time-out.
func (c *itemContext) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(context.Cause(c.Context), ErrTimeout) {
		return context.DeadlineExceeded
	}
	return err
}

// Value returns the item for the key of deliveries.
func (c *itemContext) Value(key any) any {
	if key == (deliveryKey{}) {
		return c
	}
	return c.Context.Value(key)
}
