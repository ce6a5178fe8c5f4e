package tokens

import (
	"context"
	"sync"
	"time"
)

// handlerContext is the context of a handler. It ends with that of the delivery, when the token is lost, or when the
// handler has returned. A context that can be ended by itself costs more than all else that the limit does
// for a job, so it is derived when somebody waits for it, or when it ends early.
type handlerContext struct {
	delivery context.Context

	mu     sync.Mutex
	own    context.Context         // derived from it; nil while that is as good; guarded by mu
	cancel context.CancelCauseFunc // of own; guarded by mu
	over   bool                    // the handler has returned; guarded by mu
}

// end ends the context. The cause is nil if the handler has returned.
func (c *handlerContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cause != nil {
		c.derive()
	}
	if c.own != nil {
		c.cancel(cause)
	}
	c.over = c.over || cause == nil
}

// derive makes the context that can be ended by itself. Requires mu.
func (c *handlerContext) derive() {
	if c.own != nil {
		return
	}
	c.own, c.cancel = context.WithCancelCause(c.delivery)
	if c.over {
		c.cancel(nil)
	}
}

func (c *handlerContext) current() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		c.derive()
	}
	if c.own != nil {
		return c.own
	}
	return c.delivery
}

// Done returns the channel that is closed when it ends.
func (c *handlerContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.derive()
	return c.own.Done()
}

// Deadline returns that of the delivery.
func (c *handlerContext) Deadline() (time.Time, bool) { return c.delivery.Deadline() }

// Err returns why it has ended, or nil.
func (c *handlerContext) Err() error { return c.current().Err() }

// Value returns that of the delivery. Package context asks in this way for the context whose cause it wants.
func (c *handlerContext) Value(key any) any { return c.current().Value(key) }
