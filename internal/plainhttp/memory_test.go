package plainhttp

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/pipelistener"
)

// pipes is a listener in memory.
type pipes struct{ *pipelistener.Listener }

func newPipes() pipes { return pipes{pipelistener.New()} }

// dial returns the client's end of a connection that was accepted.
func (p pipes) dial() net.Conn {
	client, err := p.Dial(context.Background())
	if err != nil {
		panic(err) // the server has ended
	}
	return client
}

// script is a connection whose client sends pieces, one for each read, and ends; it
// keeps what it is sent.
type script struct {
	seen   []string      // requests, as the handler has seen them
	closed chan struct{} // when the server has closed it

	mu     sync.Mutex
	pieces []string // guarded by mu
	sent   []byte   // guarded by mu
	done   bool     // guarded by mu
}

func newScript(pieces ...string) *script { return &script{pieces: pieces, closed: make(chan struct{})} }

func (s *script) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return 0, net.ErrClosed
	}
	for len(s.pieces) > 0 && s.pieces[0] == "" {
		s.pieces = s.pieces[1:]
	}
	if len(s.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.pieces[0])
	s.pieces[0] = s.pieces[0][n:]
	return n, nil
}

func (s *script) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done {
		return 0, net.ErrClosed
	}
	s.sent = append(s.sent, p...)
	return len(p), nil
}

func (s *script) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done {
		s.done = true
		close(s.closed)
	}
	return nil
}

func (s *script) LocalAddr() net.Addr              { return &net.UnixAddr{Name: "server"} }
func (s *script) RemoteAddr() net.Addr             { return &net.UnixAddr{Name: "client"} }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// serving starts a server over a listener in memory; stop is to be called.
func serving(odd *http.Server) (s *Server, l pipes, stop func()) {
	s, l = New(odd), newPipes()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // http.ErrServerClosed
	}()
	return s, l, func() {
		s.Close()
		<-done
	}
}
