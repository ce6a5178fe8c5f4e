package emulator

import (
	"context"
	"net"
	"net/http"
	"sync"

	"github.com/millrace/millrace/internal/plainhttp"
)

// connections are those of an endpoint, and what serves them. Serve returns
// [http.ErrServerClosed] when one of the others has been called, and those return
// when nothing runs any more.
type connections interface {
	Serve(net.Listener) error
	Shutdown(context.Context) error
	Close()
}

// connections returns what serves an endpoint: net/http with TLS, and where handlers
// wait. Theirs is the context that ends when a client leaves, so that a request that
// nobody waits for does not begin after its delay: net/http watches the connection
// meanwhile. Everywhere else handlers answer at once, and watching would cost as much as
// they do.
func (s *Server) connections(server *http.Server) connections {
	if server.TLSConfig != nil || s.delay > 0 || s.faults != nil {
		return newWaitingServer(server)
	}
	return plainhttp.New(server)
}

// watched is an [http.Server] that waits for its connections. Serve is called once.
type waitingServer struct {
	server *http.Server
	served chan struct{} // closed when Serve returns
	// open counts open connections. They are counted in before Serve returns, so
	// waiting for them after that is sound.
	conns sync.WaitGroup
}

func newWaitingServer(server *http.Server) *waitingServer {
	w := &waitingServer{server: server, served: make(chan struct{})}
	server.ConnState = w.count
	return w
}

// count keeps track of connections: New before their goroutine starts, Closed
// as the last thing it does.
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
	_ = w.server.Close() // says what Serve says, and that closing twice is no news
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
