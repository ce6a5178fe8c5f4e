package listener

import "sync"

// closeOnce is a channel that is closed by the first call of close. The zero value is ready to
// use.
type closeOnce struct {
	mu     sync.Mutex
	ch     chan struct{} // made on first use; guarded by mu
	closed bool          // whether ch is closed; guarded by mu
}

func (c *closeOnce) done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.channel()
}

// close closes the channel. It may be called more than once.
func (c *closeOnce) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ch := c.channel(); !c.closed {
		c.closed = true
		close(ch)
	}
}

// channel returns the channel and makes it if there is none. Requires mu.
func (c *closeOnce) channel() chan struct{} {
	if c.ch == nil {
		c.ch = make(chan struct{})
	}
	return c.ch
}
