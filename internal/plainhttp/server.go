package plainhttp

import (
	"cmp"
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

// Server serves plain requests itself and hands other connections over to an [http.Server]. It is
// safe for concurrent use. Create one with [New]; Close or Shutdown must be called.
type Server struct {
	// HandOver reports whether net/http must serve a request with this method and query, which then
	// is not plain: because its handler waits, or sends a response while it writes it. It is called
	// when the head has been read, by several goroutines. It must be set before Serve. Defaults to
	// nil: none.
	HandOver func(method, query string) bool

	// Handler handles plain requests. It must be set before Serve. Defaults to that of the fallback.
	Handler http.Handler

	fallback *http.Server     // serves connections that are handed over, and has the configuration
	handoff  *handoffListener // listener of fallback
	start    time.Time        // zero point of instants

	connContext func(context.Context, net.Conn) context.Context // makes a connection's context; or nil
	base        context.Context
	cancel      context.CancelFunc // ends base

	headerTimeout, bodyTimeout, writeTimeout, idleTimeout time.Duration // timeouts; 0 for none

	closing         atomic.Bool    // no new requests are started
	fallbackServing sync.WaitGroup // goroutine of fallback.Serve
	fallbackConns   sync.WaitGroup // connections of fallback

	mu        sync.Mutex
	started   bool                      // fallback serves; guarded by mu
	listeners map[net.Listener]struct{} // guarded by mu
	conns     map[*conn]struct{}        // guarded by mu
	drained   chan struct{}             // closed when closing is set and both maps are empty; guarded by mu
	empty     bool                      // drained is closed; guarded by mu
}

// New returns a server with the Handler, timeouts, ErrorLog and hooks of the fallback server,
// which serves connections that are handed over. ConnState is called for those only. ConnState
// and ConnContext get connections as they were accepted. The fallback must have a Handler; it
// belongs to the server from then on and must not be changed, served or closed by others.
func New(odd *http.Server) *Server {
	s := &Server{
		fallback:      odd,
		handoff:       &handoffListener{connections: make(chan net.Conn), closed: make(chan struct{})},
		Handler:       odd.Handler,
		start:         time.Now(),
		headerTimeout: firstTimeout(odd.ReadHeaderTimeout, odd.ReadTimeout),
		bodyTimeout:   max(odd.ReadTimeout, 0),
		writeTimeout:  max(odd.WriteTimeout, 0),
		idleTimeout:   firstTimeout(odd.IdleTimeout, odd.ReadTimeout),
		listeners:     make(map[net.Listener]struct{}),
		conns:         make(map[*conn]struct{}),
		drained:       make(chan struct{}),
	}
	s.base, s.cancel = context.WithCancel(context.WithValue(context.Background(), http.ServerContextKey, odd))
	odd.BaseContext = func(net.Listener) context.Context { return s.base }
	if s.connContext = odd.ConnContext; s.connContext != nil {
		odd.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return s.connContext(ctx, unwrap(c)) }
	}
	state := odd.ConnState
	odd.ConnState = func(c net.Conn, now http.ConnState) {
		if now == http.StateNew {
			s.fallbackConns.Add(1) // before the connection's goroutine starts
		}
		if state != nil {
			state(unwrap(c), now)
		}
		if now == http.StateClosed || now == http.StateHijacked {
			s.fallbackConns.Done() // the last thing its goroutine does
		}
	}
	return s
}

// firstTimeout returns the first timeout that is set, as [http.Server] chooses them.
func firstTimeout(timeout, otherwise time.Duration) time.Duration {
	timeout = cmp.Or(timeout, otherwise)
	return max(timeout, 0)
}

// Serve accepts connections until the listener fails or the server is closed, which is
// [http.ErrServerClosed]. It closes the listener. Accepted connections continue when it returns.
func (s *Server) Serve(listener net.Listener) error {
	defer func() { _ = listener.Close() }() // it is closed already, or has failed
	if !s.addListener(listener) {
		return http.ErrServerClosed
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.listeners, listener)
		s.checkDrained()
	}()
	for {
		raw, err := s.accept(listener)
		if s.closing.Load() {
			if err == nil {
				_ = raw.Close()
			}
			return http.ErrServerClosed
		}
		if err != nil {
			return err
		}
		if c := newConn(s, raw); s.track(c) {
			go c.serve() // untrack tells when it has ended
		} else {
			_ = raw.Close()
		}
	}
}

// addListener registers a listener, unless the server is closed.
func (s *Server) addListener(listener net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return false
	}
	if !s.started {
		s.started = true
		s.fallbackServing.Go(func() { _ = s.fallback.Serve(s.handoff) }) // until it is closed
	}
	s.listeners[listener] = struct{}{}
	return true
}

// track registers a connection, unless the server is closed.
func (s *Server) track(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Load() {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) untrack(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.checkDrained()
}

// checkDrained closes drained if nothing is left. mu must be held.
func (s *Server) checkDrained() {
	if s.closing.Load() && !s.empty && len(s.conns) == 0 && len(s.listeners) == 0 {
		s.empty = true
		close(s.drained)
	}
}

// Pauses after a temporary error of Accept, such as too many open files.
const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// accept returns the next connection or a permanent error.
func (s *Server) accept(listener net.Listener) (net.Conn, error) {
	for wait := minAcceptPause; ; wait = min(2*wait, maxAcceptPause) {
		raw, err := listener.Accept()
		// net/http uses the Temporary method too: there is no other way to tell.
		var temporary interface{ Temporary() bool }
		if err == nil || !errors.As(err, &temporary) || !temporary.Temporary() {
			return raw, err
		}
		s.logf("http: Accept error: %v; retrying in %v", err, wait)
		if !waiting.For(wait, s.handoff.closed) {
			return nil, err
		}
	}
}

// Close stops accepting, closes all connections and waits until nothing of the server runs.
// Requests in progress are aborted and their contexts end. It can be called again.
func (s *Server) Close() {
	s.stop(func(c *conn) {
		c.state.Store(closed)
		_ = c.raw.Close()
	})
	_ = s.fallback.Close() // its listener is ours, and closed
	s.cancel()             // when nothing can be answered any more
	s.wait()
}

// Shutdown stops accepting, closes connections without a complete head, lets other requests
// finish, and waits until nothing of the server runs. If ctx ends first, it aborts the rest like
// Close and returns the context's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stop(func(c *conn) {
		if c.state.CompareAndSwap(idle, closed) {
			_ = c.raw.Close()
		}
	})
	theirs := make(chan error, 1)
	go func() { theirs <- s.fallback.Shutdown(ctx) }() // received below, whatever happens
	err := error(nil)
	select {
	case <-s.drained:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if failed := <-theirs; failed != nil { // it ends with ctx too
		err = failed
	}
	if err != nil {
		s.Close()
		return err
	}
	s.cancel()
	s.wait()
	return nil
}

// stop stops accepting and starting requests, and calls each for all connections.
//
// A connection is in the map before it is served and leaves it at the end, so none is missed:
// later ones see closing, under mu.
func (s *Server) stop(each func(*conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing.Store(true)
	_ = s.handoff.Close()
	for listener := range s.listeners {
		_ = listener.Close() // Serve says how accepting ended
	}
	for c := range s.conns {
		each(c)
	}
	s.checkDrained()
}

// wait waits until nothing runs, after stop. Connections are handed over before drained is
// closed, and counted in fallbackConns before fallback.Serve returns.
func (s *Server) wait() {
	<-s.drained
	s.fallbackServing.Wait()
	s.fallbackConns.Wait()
}

func (s *Server) logf(format string, args ...any) {
	if s.fallback.ErrorLog != nil {
		s.fallback.ErrorLog.Printf(format, args...)
		return
	}
	log.Printf(format, args...) //nolint:forbidigo // it stands in for net/http
}

// handoffListener is the listener from which the [http.Server] accepts connections that are
// handed over.
type handoffListener struct {
	connections chan net.Conn
	once        sync.Once
	closed      chan struct{}
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
