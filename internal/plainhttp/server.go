package plainhttp

import (
	"context"
	"errors"
	"log"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Server serves connections, plain ones itself and others through an
// [http.Server]. Make one with [New]; one of Close and Shutdown must be called. It is
// safe for concurrent use.
type Server struct {
	fallback *http.Server     // serves what is handed over, and says all that is to be configured
	handoff  *handoffListener // what odd accepts from
	handler  http.Handler
	start    time.Time // what times on the connections' clocks are relative to

	connContext func(context.Context, net.Conn) context.Context // makes a connection's context; or nil
	base        context.Context
	cancel      context.CancelFunc // ends base

	headerTimeout, bodyTimeout, writeTimeout, idleTimeout time.Duration // time-outs; 0 for none

	closing         atomic.Bool    // no request is begun any more
	fallbackServing sync.WaitGroup // goroutines in which odd serves
	fallbackConns   sync.WaitGroup // connections of odd

	mu        sync.Mutex
	started   bool                      // odd serves; guarded by mu
	listeners map[net.Listener]struct{} // guarded by mu
	conns     map[*conn]struct{}        // guarded by mu
	drained   chan struct{}             // closed when closing and both maps are empty; guarded by mu
	empty     bool                      // drained is closed; guarded by mu
}

// New returns a server with the Handler, the time-outs, the ErrorLog and the hooks of
// odd, which serves what is handed over. ConnState hears of those connections only; it
// and ConnContext get the connections as they were accepted.
// From then on odd is the server's: it may not be changed, and nobody else may serve
// with it or close it. It has to have a Handler.
func New(odd *http.Server) *Server {
	s := &Server{
		fallback:      odd,
		handoff:       newHandoffListener(),
		handler:       odd.Handler,
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
			s.fallbackConns.Add(1) // before the goroutine of the connection starts
		}
		if state != nil {
			state(unwrap(c), now)
		}
		if now == http.StateClosed || now == http.StateHijacked {
			s.fallbackConns.Done() // the last thing that it does
		}
	}
	return s
}

// or is a time-out as [http.Server] has them: when it is not set, another one counts.
func firstTimeout(timeout, otherwise time.Duration) time.Duration {
	if timeout == 0 {
		timeout = otherwise
	}
	return max(timeout, 0)
}

// Serve accepts connections until the listener fails or the server is closed, which
// is [http.ErrServerClosed]. It closes the listener. Connections go on when it has
// returned.
func (s *Server) Serve(listener net.Listener) error {
	defer func() { _ = listener.Close() }() // it is closed already, or has failed
	if !s.addListener(listener) {
		return http.ErrServerClosed
	}
	defer s.removeListener(listener)
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

// began keeps a listener, unless the server is closed.
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

func (s *Server) removeListener(listener net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, listener)
	s.checkDrained()
}

// track keeps a connection, unless the server is closed.
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

// lookWhetherDrained is called with mu held.
func (s *Server) checkDrained() {
	if s.closing.Load() && !s.empty && len(s.conns) == 0 && len(s.listeners) == 0 {
		s.empty = true
		close(s.drained)
	}
}

// The pauses after an error of accepting that will pass, such as that there are too
// many open files.
const (
	minAcceptPause = 5 * time.Millisecond
	maxAcceptPause = time.Second
)

// accept returns the next connection, or an error that will not pass.
func (s *Server) accept(listener net.Listener) (net.Conn, error) {
	for pause := minAcceptPause; ; pause = min(2*pause, maxAcceptPause) {
		raw, err := listener.Accept()
		if err == nil || !isTemporary(err) {
			return raw, err
		}
		s.logf("http: Accept error: %v; retrying in %v", err, pause)
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-s.handoff.closed:
			timer.Stop()
			return nil, err
		}
	}
}

// passing tells whether an error of accepting will pass. There is nothing but Temporary
// to tell by: net/http does so too.
func isTemporary(err error) bool {
	var temporary interface{ Temporary() bool }
	return errors.As(err, &temporary) && temporary.Temporary()
}

// Close stops accepting, closes all connections and waits until nothing of the server
// runs. Requests under way are cut off, and their contexts end. Closing again is fine.
func (s *Server) Close() {
	s.stop(func(c *conn) {
		c.state.Store(closed)
		_ = c.raw.Close()
	})
	_ = s.fallback.Close() // its listener is ours, and closed
	s.cancel()             // when nothing can be answered any more
	s.wait()
}

// Shutdown stops accepting, closes the connections on which no whole head of a request
// has come, lets the other requests be answered, and waits until nothing of the server
// runs. When ctx ends first, it cuts the rest off like Close and returns the context's
// error.
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

// stop stops accepting and beginning requests, and does this to all connections.
//
// A connection is in the map before it can be served and leaves it at its very end,
// so none is missed: those that come later see closing, under mu.
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

// wait waits until nothing runs, after stop. Connections are handed over before drained
// is closed, and counted in theirs before serving is done.
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
