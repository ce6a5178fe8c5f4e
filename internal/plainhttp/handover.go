package plainhttp

import (
	"net"
	"net/http"
	"sync"
)

// handoffListener is the listener from which the [http.Server] accepts connections that are
// handed over.
type handoffListener struct {
	connections chan net.Conn
	once        sync.Once
	closed      chan struct{}
}

func newHandoffListener() *handoffListener {
	return &handoffListener{connections: make(chan net.Conn), closed: make(chan struct{})}
}

// send hands a connection over, or closes it if the server is closing. net/http accepts and
// serves in one goroutine, so an accepted connection will be served.
func (h *handoffListener) send(c net.Conn) {
	select {
	case h.connections <- c:
	case <-h.closed:
		_ = c.Close() // nothing can be done about an error
	}
}

func (h *handoffListener) Accept() (net.Conn, error) {
	select {
	case c := <-h.connections:
		return c, nil
	case <-h.closed:
		return nil, http.ErrServerClosed
	}
}

func (h *handoffListener) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

// Addr returns an empty address. net/http requires the method, and does not show the address
// here.
func (h *handoffListener) Addr() net.Addr { return &net.TCPAddr{} }

// resumedConn is a connection from which bytes have been read.
type resumedConn struct {
	net.Conn
	read []byte // returned first
}

// unwrap returns the connection as it was accepted.
func unwrap(c net.Conn) net.Conn {
	if r, ok := c.(*resumedConn); ok {
		return r.Conn
	}
	return c
}

// Read has one caller at a time, as net/http reads.
func (r *resumedConn) Read(p []byte) (int, error) {
	if len(r.read) == 0 {
		return r.Conn.Read(p)
	}
	n := copy(p, r.read)
	if r.read = r.read[n:]; len(r.read) == 0 {
		r.read = nil
	}
	return n, nil
}

// CloseWrite lets net/http close the write side first, so that a response to a request that is
// too large is not lost in a reset.
func (r *resumedConn) CloseWrite() error {
	if half, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
