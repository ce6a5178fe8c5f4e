// Package pipelistener has a listener in memory, whose connections are pipes. Tests serve on it inside a
// synctest bubble, which does not understand sockets.
package pipelistener

import (
	"context"
	"net"
	"sync"
)

// Listener is a [net.Listener] in memory. It is safe for concurrent use.
type Listener struct {
	arrived chan net.Conn
	once    sync.Once
	closed  chan struct{}
}

var _ net.Listener = (*Listener)(nil)

// New returns a listener that is open.
func New() *Listener { return &Listener{arrived: make(chan net.Conn), closed: make(chan struct{})} }

// Accept implements [net.Listener].
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.arrived:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener]. Connections stay open.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements [net.Listener]. The address is one that a URL can have; nothing listens there.
func (l *Listener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// Dial returns the client's end of a connection, after Accept has returned the server's end.
func (l *Listener) Dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	if err := l.Offer(ctx, there); err != nil {
		return nil, err
	}
	return here, nil
}

// Offer waits until Accept has returned the connection c, the server's end of one. If the context ends first,
// or the listener is closed, it returns an error.
func (l *Listener) Offer(ctx context.Context, c net.Conn) error {
	select {
	case l.arrived <- c:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.closed:
		return net.ErrClosed
	}
}
