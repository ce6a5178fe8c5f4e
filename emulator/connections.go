package emulator

import (
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/millrace/millrace/internal/plainhttp"
)

// connections serves an endpoint's connections. Serve returns [http.ErrServerClosed] after one of
// the other methods was called; those return when nothing runs any more.
type connections interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
	Close()
}

// connections returns net/http for TLS, and if all handlers wait. Then the context must end when a
// client leaves, so that an abandoned request does not start after its delay, and net/http
// watches the connection for that. Otherwise handlers return at once, and watching would cost as
// much as they do.
func (s *Server) connections(server *http.Server) connections {
	if server.TLSConfig != nil || s.delay > 0 {
		return newWaitingServer(server)
	}
	p := plainhttp.New(server)
	p.HandOver = s.mustHandOver
	p.Handler = http.HandlerFunc(s.servePlain)
	return p
}

// mustHandOver reports whether net/http must serve a request that our own loop has read: one that may
// be for a stream, and every one while there are faults. A connection that was idle when they
// were set is handed over with its next request.
func (s *Server) mustHandOver(method, query string) bool {
	return s.faults.Load() != nil || method == http.MethodGet && mayStream(query)
}

// waitingServer is an [http.Server] that waits for its connections. Serve must be called once.
type waitingServer struct {
	server *http.Server
	served chan struct{}  // closed when Serve returns
	conns  sync.WaitGroup // open connections; added before Serve returns, so that Wait after it is correct
}

func newWaitingServer(server *http.Server) *waitingServer {
	w := &waitingServer{server: server, served: make(chan struct{})}
	server.ConnState = w.count
	return w
}

// count tracks connections: StateNew comes before their goroutine starts, StateClosed is its last
// action.
func (w *waitingServer) count(_ net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		w.conns.Add(1)
	case http.StateClosed:
		w.conns.Done()
	}
}

func (w *waitingServer) Serve(listener net.Listener) error {
	defer close(w.served)
	if w.server.TLSConfig != nil {
		return w.server.ServeTLS(listener, "", "")
	}
	return w.server.Serve(listener)
}

func (w *waitingServer) Close() {
	_ = w.server.Close() // Serve returns the error; closing twice is fine
	w.wait()
}

func (w *waitingServer) Shutdown(ctx context.Context) error {
	if err := w.server.Shutdown(ctx); err != nil {
		w.Close()
		return err
	}
	w.wait()
	return nil
}

func (w *waitingServer) wait() {
	<-w.served
	w.conns.Wait()
}
