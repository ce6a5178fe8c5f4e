package dispatcher

import (
	"context"
	"errors"
	"sync"
	"time"
)

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
func (v *delivery) newItemContext(parent context.Context, item int, timeout time.Duration) *itemContext {
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
