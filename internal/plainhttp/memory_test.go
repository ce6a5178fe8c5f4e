package plainhttp

import (
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// pipes is a listener in memory.
type pipes struct {
	accept chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newPipes() *pipes { return &pipes{accept: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

// dial returns the client's end of a connection that was accepted.
func (p *pipes) dial() net.Conn {
	client, server := net.Pipe()
	p.accept <- server
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
func serving(odd *http.Server) (s *Server, l *pipes, stop func()) {
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
