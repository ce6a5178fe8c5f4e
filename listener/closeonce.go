package listener

import "sync"

// gate is a channel that is closed once, by whoever comes first. The zero value is ready.
type closeOnce struct {
	mu     sync.Mutex
	ch     chan struct{} // made when first asked for; guarded by mu
	closed bool          // whether it is open; guarded by mu
}

// opened returns the channel that open closes.
func (g *closeOnce) done() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.channel()
}

// open closes the channel.
func (g *closeOnce) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ch := g.channel(); !g.closed {
		g.closed = true
		close(ch)
	}
}

// channel makes the channel if there is none. Requires mu.
func (g *closeOnce) channel() chan struct{} {
	if g.ch == nil {
		g.ch = make(chan struct{})
	}
	return g.ch
}
