package plainhttp

import (
	"net"
	"net/http"
	"sync"
)

// handed is the listener from which the [http.Server] accepts the connections that
// are handed over.
type handoffListener struct {
	connections chan net.Conn
	once        sync.Once
	closed      chan struct{}
}

func newHandoffListener() *handoffListener {
	return &handoffListener{connections: make(chan net.Conn), closed: make(chan struct{})}
}

// give hands a connection over, or closes it when nobody takes it any more. Taken is
// as good as served: Serve accepts and serves in one goroutine.
func (h *handoffListener) send(c net.Conn) {
	select {
	case h.connections <- c:
	case <-h.closed:
		_ = c.Close() // nobody is there to hear of it
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

// Addr is where nothing listens: net/http asks for it and tells it to nobody here.
func (h *handoffListener) Addr() net.Addr { return &net.TCPAddr{} }

// resumed is a connection of which something has been read already.
type resumedConn struct {
	net.Conn
	read []byte // comes first
}

// accepted is the connection as it was accepted.
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

// CloseWrite is for net/http, which closes one half before the other so that an
// answer to a request that is too large is not lost in a reset.
func (r *resumedConn) CloseWrite() error {
	if half, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
