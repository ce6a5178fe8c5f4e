package waiting

import (
	"context"
	"errors"
	"sync"
	"time"
)

// WithTimeout is context.WithTimeout for calls that seldom wait: there is a timer only after somebody has asked for
// Done. If nobody looks at the context between its deadline and the end of its parent, it ends with the parent.
func WithTimeout(parent context.Context, d time.Duration) (ctx context.Context, cancel context.CancelFunc) {
	c := &timeout{Context: parent, at: time.Now().Add(d)}
	if earlier, bounded := parent.Deadline(); bounded && earlier.Before(c.at) {
		return context.WithCancel(parent) // which has a timer, and a cause
	}
	return c, c.cancel
}

// timeout is a context of WithTimeout. The embedded one is its parent.
type timeout struct {
	context.Context
	at time.Time

	mu    sync.Mutex
	ended error              // why it ended before there was a timer, unless with its parent; guarded by mu
	timed context.Context    // has the timer; guarded by mu
	stop  context.CancelFunc // of timed; guarded by mu
}

// Deadline implements [context.Context].
func (c *timeout) Deadline() (time.Time, bool) { return c.at, true }

// Err implements [context.Context].
func (c *timeout) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err()
}

// err is Err. It requires mu.
func (c *timeout) err() error {
	if c.timed != nil {
		return c.timed.Err()
	}
	if c.ended != nil {
		return c.ended
	}
	if err := c.Context.Err(); err != nil {
		return err
	}
	if !time.Now().Before(c.at) {
		c.ended = context.DeadlineExceeded
	}
	return c.ended
}

// Done implements [context.Context].
func (c *timeout) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timed == nil {
		if _ = c.err(); errors.Is(c.ended, context.Canceled) {
			c.timed, c.stop = context.WithCancel(c.values())
			c.stop()
		} else {
			c.timed, c.stop = context.WithDeadline(c.values(), c.at)
		}
	}
	return c.timed.Done()
}

// Value implements [context.Context]. It has what the context of the timer has, so that those derived from this one
// need no goroutine to hear of its end.
func (c *timeout) Value(key any) any {
	c.mu.Lock()
	of := c.timed
	if of == nil {
		of = c.values()
	}
	c.mu.Unlock()
	return of.Value(key)
}

// values returns the parent, without its end if this context has ended before. It requires mu.
func (c *timeout) values() context.Context {
	if c.ended != nil {
		return context.WithoutCancel(c.Context)
	}
	return c.Context
}

func (c *timeout) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop != nil {
		c.stop()
	} else if c.err() == nil {
		c.ended = context.Canceled
	}
}
