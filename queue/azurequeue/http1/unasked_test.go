package http1

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// flight is a server's end of a connection that holds back what is written, so that a test decides
// what is in one segment.
type flight struct {
	net.Conn
	held bytes.Buffer
	hold bool
}

func (f *flight) Write(p []byte) (int, error) {
	if f.hold {
		return f.held.Write(p)
	}
	return f.Conn.Write(p)
}

// send sends the first n held bytes, or all if n is negative.
func (f *flight) send(n int) {
	if n < 0 {
		n = f.held.Len()
	}
	f.Conn.Write(f.held.Next(n))
}

// served is one connection of a server whose test decides what to do with each request.
type served struct {
	wire  net.Conn // where HTTP is written; over TLS if it is used
	below *flight
	path  string // of the current request
}

// text returns the response to the current request.
func (s *served) text() string { return ok("for " + s.path) }

func ok(body string) string {
	return "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

// pair returns TLS configurations of a server with a test certificate and of a client that trusts it.
var pair = sync.OnceValues(func() (*tls.Config, *tls.Config) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return &tls.Config{Certificates: s.TLS.Certificates, MinVersion: tls.VersionTLS12}, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
})

// serveFlights starts a server that calls respond for each request of its first connection. Its other
// connections respond to every request themselves.
func serveFlights(t *testing.T, secure bool, respond func(*served)) (address string, o *Options, connections *atomic.Int64) {
	t.Helper()
	server, client := pair()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connections = new(atomic.Int64)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			first := connections.Add(1) == 1
			work.Go(func() {
				defer c.Close()
				s := &served{below: &flight{Conn: c}}
				s.wire = s.below
				if secure {
					s.wire = tls.Server(s.below, server)
				}
				for in := bufio.NewReader(s.wire); ; {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					io.Copy(io.Discard, r.Body)
					s.path = r.URL.Path
					if first {
						respond(s)
					} else {
						io.WriteString(s.wire, s.text())
					}
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); work.Wait() })
	scheme := "http://"
	if secure {
		scheme = "https://"
	}
	return scheme + l.Addr().String(), &Options{TLS: client, Fallback: noFallback(t)}, connections
}

const stale = "a response to no request"

// A response that a server sends without a request must not be taken for the response to the next
// request: neither if it arrives in one segment with the previous response and is buffered in TLS
// or here, nor if it arrives later.
func TestAnUnsolicitedResponseIsNotReturned(t *testing.T) {
	for name, c := range map[string]struct {
		respond func(*served)
		secure  bool // only over TLS
	}{
		"in the same record": {respond: func(s *served) { io.WriteString(s.wire, s.text()+ok(stale)) }},
		"in the same segment": {respond: func(s *served) {
			s.below.hold = true
			io.WriteString(s.wire, s.text())
			io.WriteString(s.wire, ok(stale))
			s.below.hold = false
			s.below.send(-1)
		}},
		"after a chunked body": {respond: func(s *served) {
			s.below.hold = true
			io.WriteString(s.wire, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+
				"4\r\nfor \r\n"+strconv.Itoa(len(s.path))+"\r\n"+s.path+"\r\n0\r\n\r\n")
			io.WriteString(s.wire, ok(stale))
			s.below.hold = false
			s.below.send(-1)
		}},
		"half of its record": {secure: true, respond: func(s *served) {
			if s.below.held.Len() > 0 { // the next request: send the other half, then its response
				s.below.send(-1)
				io.WriteString(s.wire, s.text())
				return
			}
			s.below.hold = true
			io.WriteString(s.wire, s.text())
			length := s.below.held.Len()
			io.WriteString(s.wire, ok(stale))
			s.below.hold = false
			s.below.send((length + s.below.held.Len()) / 2)
		}},
		"a byte of its record": {secure: true, respond: func(s *served) {
			if s.below.held.Len() > 0 {
				s.below.send(-1)
				io.WriteString(s.wire, s.text())
				return
			}
			s.below.hold = true
			io.WriteString(s.wire, s.text())
			length := s.below.held.Len()
			io.WriteString(s.wire, ok(stale))
			s.below.hold = false
			s.below.send(length + 1)
		}},
		"a late informational response": {respond: func(s *served) {
			s.below.hold = true
			io.WriteString(s.wire, s.text())
			io.WriteString(s.wire, "HTTP/1.1 103 Early Hints\r\n\r\n"+ok(stale))
			s.below.hold = false
			s.below.send(-1)
		}},
	} {
		for _, secure := range []bool{false, true} {
			if c.secure && !secure {
				continue
			}
			address, o, connections := serveFlights(t, secure, c.respond)
			transport := must(New(o))
			for _, path := range []string{"/1", "/2", "/3"} {
				if got, err := fetch(t, transport, newRequest(t, "GET", address+path, "")); err != nil || got != "for "+path {
					t.Errorf("%s, TLS %v: response to %s: got %q, %v; want its own", name, secure, path, got, err)
				}
			}
			if n := connections.Load(); n != 2 {
				t.Errorf("%s, TLS %v: connections of 3 calls: got %d, want 2", name, secure, n)
			}
			transport.Close()
		}
	}
}

// The same holds while the connection is idle, for example for a proxy's "408 Request Timeout".
func TestAnUnsolicitedResponseWhileIdleIsNotReturned(t *testing.T) {
	if !canPeek {
		t.Skip("this system cannot peek at sockets")
	}
	for _, secure := range []bool{false, true} {
		late := make(chan struct{})
		address, o, connections := serveFlights(t, secure, func(s *served) {
			io.WriteString(s.wire, s.text())
			<-late
			io.WriteString(s.wire, ok(stale))
		})
		transport := must(New(o))
		for _, path := range []string{"/1", "/2"} {
			if got, err := fetch(t, transport, newRequest(t, "GET", address+path, "")); err != nil || got != "for "+path {
				t.Errorf("TLS %v: response to %s: got %q, %v; want its own", secure, path, got, err)
			}
			if path == "/1" {
				close(late)
				awaitUnusable(t, transport)
			}
		}
		if n := connections.Load(); n != 2 {
			t.Errorf("TLS %v: connections of 2 calls: got %d, want 2", secure, n)
		}
		transport.Close()
	}
}

// awaitUnusable waits until no idle connection is reusable.
func awaitUnusable(t *testing.T, transport *Transport) {
	t.Helper()
	for begin := time.Now(); idle(transport, (*conn).isReusable) > 0; {
		if time.Since(begin) > 10*time.Second {
			t.Fatal("idle connection after 10s: got a reusable one, want none")
		}
	}
}

// A server may send session tickets and new keys at any time. They belong to TLS and are no response.
func TestTLSMessagesKeepTheConnectionReusable(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		address, o, connections := serveFlights(t, true, func(s *served) { io.WriteString(s.wire, s.text()) })
		o.TLS = o.TLS.Clone()
		o.TLS.MinVersion, o.TLS.MaxVersion = version, version
		transport := must(New(o))
		for _, path := range []string{"/1", "/2", "/3"} {
			if got, err := fetch(t, transport, newRequest(t, "GET", address+path, "")); err != nil || got != "for "+path {
				t.Errorf("response to %s: got %q, %v; want its own", path, got, err)
			}
			if n := idle(transport, (*conn).isReusable); n != 1 {
				t.Errorf("reusable idle connections: got %d, want 1", n)
			}
		}
		if n := connections.Load(); n != 1 {
			t.Errorf("connections of 3 calls: got %d, want 1", n)
		}
		transport.Close()
	}
}

// That a server ended TLS, with or without close_notify, is noticed before the next request is sent.
func TestEndOfTLSIsNoticed(t *testing.T) {
	if !canPeek {
		t.Skip("this system cannot peek at sockets")
	}
	for name, end := range map[string]func(*served){
		"with close_notify":    func(s *served) { s.wire.(*tls.Conn).CloseWrite() },
		"without close_notify": func(s *served) { s.below.Close() },
	} {
		address, o, connections := serveFlights(t, true, func(s *served) {
			io.WriteString(s.wire, s.text())
			end(s)
		})
		transport := must(New(o))
		for _, path := range []string{"/1", "/2"} {
			if got, err := fetch(t, transport, newRequest(t, "GET", address+path, "")); err != nil || got != "for "+path {
				t.Errorf("%s: response to %s: got %q, %v; want its own", name, path, got, err)
			}
			if path == "/1" {
				awaitUnusable(t, transport)
			}
		}
		if n := connections.Load(); n != 2 {
			t.Errorf("%s: connections of 2 calls: got %d, want 2", name, n)
		}
		transport.Close()
	}
}

// If a response that cannot have a body announces one, the server may send it, so the connection is
// not reused.
func TestAForbiddenBodyEndsTheConnection(t *testing.T) {
	for _, head := range []string{
		"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
		"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
	} {
		if _, again, err := cannedConn(head, false).readResponse(); again || err != nil {
			t.Errorf("%q: connection is reusable: got %v, %v; want false", head, again, err)
		}
	}
}

// If a server refuses a request before it has read all of it and closes the connection, its response
// is returned. A broken pipe would mean that the outcome is unknown.
func TestARefusalBeforeTheWholeBodyIsReturned(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for status, returned := range map[string]bool{"413 Too Large": true, "403 Forbidden": true, "201 Created": false} {
			address, o := refusing(t, secure, status)
			transport := must(New(o))
			resp, err := transport.Do(newRequest(t, "PUT", address, strings.Repeat("x", 900_000)))
			switch {
			case returned && (err != nil || resp.Status != status):
				t.Errorf("TLS %v: got %v, %v; want status %s", secure, resp, err, status)
			case !returned && err == nil:
				t.Errorf("TLS %v: %s after half a request: got no error, want one", secure, status)
			}
			if err == nil {
				resp.Body.Close()
			}
			if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
				t.Errorf("TLS %v: got %v, want no dial error", secure, err)
			}
			if n := idle(transport, func(*conn) bool { return true }); n != 0 {
				t.Errorf("TLS %v: idle connections: got %d, want 0", secure, n)
			}
			transport.Close()
		}
	}
}

// refusing starts a server that responds once it has read the head of a request, and closes the
// connection. The socket buffers are small, so that the client cannot send the whole request first.
func refusing(t *testing.T, secure bool, status string) (address string, o *Options) {
	t.Helper()
	server, client := pair()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		c.(*net.TCPConn).SetReadBuffer(4 << 10)
		wire := c
		if secure {
			wire = tls.Server(c, server)
		}
		if _, err := http.ReadRequest(bufio.NewReader(wire)); err == nil {
			io.WriteString(wire, "HTTP/1.1 "+status+"\r\nContent-Length: 3\r\n\r\nwhy")
		}
		c.Close()
	})
	t.Cleanup(func() { l.Close(); work.Wait() })
	o = &Options{TLS: client, Fallback: noFallback(t), DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			c.(*net.TCPConn).SetWriteBuffer(4 << 10)
		}
		return c, err
	}}
	if secure {
		return "https://" + l.Addr().String(), o
	}
	return "http://" + l.Addr().String(), o
}
