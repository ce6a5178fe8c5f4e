package shipping

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/millrace/millrace/internal/pipelistener"
)

// cutAt says where a connection breaks.
type cutAt int

const (
	nowhere      cutAt = iota
	request            // the server gets the bytes until then, and the connection is gone
	halfRequest        // the server gets the bytes until then and the end, and can still respond
	response           // the client gets the bytes until then, and the connection is gone
	anyDirection       // bytes of both directions count
)

// cut breaks the line after a number of bytes, counted from the cut before.
type cut struct {
	where cutAt
	after int
}

// wire is the line between a client and a server. It breaks after a number of bytes, and then at the next cuts.
type wire struct {
	*pipelistener.Listener

	mu    sync.Mutex
	where cutAt         // guarded by mu
	left  int           // bytes until the line breaks; guarded by mu
	next  []cut         // guarded by mu
	sent  map[cutAt]int // bytes by direction; guarded by mu
	cuts  int           // guarded by mu
}

func newWire(where cutAt, left int) *wire {
	return &wire{Listener: pipelistener.New(), where: where, left: left, sent: make(map[cutAt]int)}
}

func (w *wire) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &wireConn{Conn: c, wire: w}, nil
}

// take returns how many of n bytes pass in a direction, and where the line breaks after them.
func (w *wire) take(n int, direction cutAt) (int, cutAt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	mine := w.where == direction || w.where == anyDirection || w.where == halfRequest && direction == request
	if mine && n >= w.left {
		n = w.left
		where := w.where
		w.where, w.cuts = nowhere, w.cuts+1
		if len(w.next) > 0 {
			w.where, w.left, w.next = w.next[0].where, w.next[0].after, w.next[1:]
		}
		w.sent[direction] += n
		return n, where
	}
	if mine {
		w.left -= n
	}
	w.sent[direction] += n
	return n, nowhere
}

func (w *wire) bytes(direction cutAt) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent[direction]
}

// wireConn is the server's end of a connection.
type wireConn struct {
	net.Conn
	wire *wire
	half bool // only the reading goroutine uses it
}

func (c *wireConn) Read(p []byte) (int, error) {
	if c.half {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(p)
	if n == 0 {
		return n, err
	}
	passed, where := c.wire.take(n, request)
	switch where {
	case nowhere:
		return n, err
	case halfRequest:
		c.half = true
	default:
		c.Close()
	}
	if passed == 0 {
		return 0, io.EOF
	}
	return passed, nil
}

func (c *wireConn) Write(p []byte) (int, error) {
	passed, where := c.wire.take(len(p), response)
	if where == nowhere {
		return c.Conn.Write(p)
	}
	n, _ := c.Conn.Write(p[:passed])
	c.Close()
	return n, io.ErrClosedPipe
}

// dial returns an HTTP client of the line.
func (w *wire) dial() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return w.Listener.Dial(ctx) },
	}}
}

// serve serves the handler on the line while run runs, and waits for its end.
func (w *wire) serve(t *testing.T, s *http.Server, run func()) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.Serve(w) }()
	run()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("serve: got %v", err)
	}
}

// ship sends a batch to the initiator on the line.
func (w *wire) ship(t *testing.T, i *initiator, b *Batch, o *ClientOptions) (state State, err error) {
	t.Helper()
	if o == nil {
		o = &ClientOptions{Logger: (&logLines{}).logger()}
	}
	o.HTTP = w.dial()
	c, err := NewClient("http://initiator", o)
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer(i.store, i.complete, &i.options).HTTPServer("")
	s.Handler = i
	w.serve(t, s, func() { state, err = c.Ship(t.Context(), b) })
	o.HTTP.CloseIdleConnections()
	return state, err
}
