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

// flight is a server's end of a connection that sends nothing before it is told to, so
// that a test decides what is in one segment.
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

// send sends the first n bytes of what is held, or all of it.
func (f *flight) send(n int) {
	if n < 0 {
		n = f.held.Len()
	}
	f.Conn.Write(f.held.Next(n))
}

// served is one connection of a server that is told what to do with each request.
type served struct {
	wire  net.Conn // as HTTP sees it
	below *flight
	path  string // of the request that is to be answered
}

// text is the answer that belongs to the request.
func (s *served) text() string { return ok("for " + s.path) }

func ok(body string) string {
	return "HTTP/1.1 200 OK\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

// pair are the certificate of the tests and a client's configuration that trusts it.
var pair = sync.OnceValues(func() (*tls.Config, *tls.Config) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return &tls.Config{Certificates: s.TLS.Certificates, MinVersion: tls.VersionTLS12}, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
})

// serveFlights is a server whose first connection does as the test says, and whose others
// answer every request. After is called when answer has returned, before the next request
// of that connection is read.
func serveFlights(t *testing.T, secure bool, answer func(*served)) (address string, o *Options, connections *atomic.Int64) {
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
						answer(s)
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

const stale = "this answers nothing"

// What a server says without having been asked is an answer to nothing, and the next
// request must not get it: neither when it has come in one segment with the answer before,
// and lies in TLS or with us, nor when it came later.
func TestAnAnswerToNothingIsGivenToNobody(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(*served)
		secure bool // makes no sense without TLS
	}{
		"in the same record": {answer: func(s *served) { io.WriteString(s.wire, s.text()+ok(stale)) }},
		"in the same segment": {answer: func(s *served) {
			s.below.hold = true
			io.WriteString(s.wire, s.text())
			io.WriteString(s.wire, ok(stale))
			s.below.hold = false
			s.below.send(-1)
		}},
		"after a chunked body": {answer: func(s *served) {
			s.below.hold = true
			io.WriteString(s.wire, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+
				"4\r\nfor \r\n"+strconv.Itoa(len(s.path))+"\r\n"+s.path+"\r\n0\r\n\r\n")
			io.WriteString(s.wire, ok(stale))
			s.below.hold = false
			s.below.send(-1)
		}},
		"half of its record": {secure: true, answer: func(s *served) {
			if s.below.held.Len() > 0 { // the next request has come: the other half, and its answer
				s.below.send(-1)
				io.WriteString(s.wire, s.text())
				return
			}
			s.below.hold = true
			io.WriteString(s.wire, s.text())
			answered := s.below.held.Len()
			io.WriteString(s.wire, ok(stale))
			s.below.hold = false
			s.below.send((answered + s.below.held.Len()) / 2)
		}},
		"a byte of its record": {secure: true, answer: func(s *served) {
			if s.below.held.Len() > 0 {
				s.below.send(-1)
				io.WriteString(s.wire, s.text())
				return
			}
			s.below.hold = true
			io.WriteString(s.wire, s.text())
			answered := s.below.held.Len()
			io.WriteString(s.wire, ok(stale))
			s.below.hold = false
			s.below.send(answered + 1)
		}},
		"a late interim answer": {answer: func(s *served) {
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
			address, o, connections := serveFlights(t, secure, c.answer)
			transport := New(o)
			for _, path := range []string{"/1", "/2", "/3"} {
				if got, err := said(t, transport, newRequest(t, "GET", address+path, "")); err != nil || got != "for "+path {
					t.Errorf("%s, TLS %v: %s gets %q, %v", name, secure, path, got, err)
				}
			}
			if n := connections.Load(); n != 2 {
				t.Errorf("%s, TLS %v: 3 calls used %d connections, want 2", name, secure, n)
			}
			transport.Close()
		}
	}
}

// The same when it comes while the connection is idle: a proxy's "408 Request Timeout",
// for example.
func TestAnAnswerThatComesWhileIdleIsGivenToNobody(t *testing.T) {
	if !canPeek {
		t.Skip("sockets cannot be looked at on this system")
	}
	for _, secure := range []bool{false, true} {
		late := make(chan struct{})
		address, o, connections := serveFlights(t, secure, func(s *served) {
			io.WriteString(s.wire, s.text())
			<-late
			io.WriteString(s.wire, ok(stale))
		})
		transport := New(o)
		for _, path := range []string{"/1", "/2"} {
			if got, err := said(t, transport, newRequest(t, "GET", address+path, "")); err != nil || got != "for "+path {
				t.Errorf("TLS %v: %s gets %q, %v", secure, path, got, err)
			}
			if path == "/1" {
				close(late)
				noticed(t, transport)
			}
		}
		if n := connections.Load(); n != 2 {
			t.Errorf("TLS %v: 2 calls used %d connections, want 2", secure, n)
		}
		transport.Close()
	}
}

// noticed waits until no idle connection stands any more.
func noticed(t *testing.T, transport *Transport) {
	t.Helper()
	for begin := time.Now(); idle(transport, (*conn).isReusable) > 0; {
		if time.Since(begin) > 10*time.Second {
			t.Fatal("an idle connection that is not sound passes for sound")
		}
	}
}

// A server may send tickets for later sessions, and new keys, whenever it likes: that is
// TLS's own business, and no answer.
func TestMessagesOfTLSEndNoConnection(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		address, o, connections := serveFlights(t, true, func(s *served) { io.WriteString(s.wire, s.text()) })
		o.TLS = o.TLS.Clone()
		o.TLS.MinVersion, o.TLS.MaxVersion = version, version
		transport := New(o)
		for _, path := range []string{"/1", "/2", "/3"} {
			if got, err := said(t, transport, newRequest(t, "GET", address+path, "")); err != nil || got != "for "+path {
				t.Errorf("%s gets %q, %v", path, got, err)
			}
			if n := idle(transport, (*conn).isReusable); n != 1 {
				t.Errorf("%d idle connections stand, want 1", n)
			}
		}
		if n := connections.Load(); n != 1 {
			t.Errorf("3 calls used %d connections, want 1", n)
		}
		transport.Close()
	}
}

// A server that ends TLS, with a farewell or without, is noticed before a request is spent.
func TestEndOfTLSIsNoticed(t *testing.T) {
	if !canPeek {
		t.Skip("sockets cannot be looked at on this system")
	}
	for name, end := range map[string]func(*served){
		"with a farewell": func(s *served) { s.wire.(*tls.Conn).CloseWrite() },
		"without":         func(s *served) { s.below.Close() },
	} {
		address, o, connections := serveFlights(t, true, func(s *served) {
			io.WriteString(s.wire, s.text())
			end(s)
		})
		transport := New(o)
		for _, path := range []string{"/1", "/2"} {
			if got, err := said(t, transport, newRequest(t, "GET", address+path, "")); err != nil || got != "for "+path {
				t.Errorf("%s: %s gets %q, %v", name, path, got, err)
			}
			if path == "/1" {
				noticed(t, transport)
			}
		}
		if n := connections.Load(); n != 2 {
			t.Errorf("%s: 2 calls used %d connections, want 2", name, n)
		}
		transport.Close()
	}
}

// An answer that has no body and announces one all the same: whoever wrote it may send it.
func TestABodyThatMustNotBeEndsTheConnection(t *testing.T) {
	for _, head := range []string{
		"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n",
		"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
	} {
		if _, again, err := cannedConn(head, false).readResponse(); again || err != nil {
			t.Errorf("%q: can be used again: %v, %v", head, again, err)
		}
	}
}

// A server that refuses a request before it has read all of it, and hangs up, has said why:
// that is worth more than a broken pipe, whose outcome would be unknown.
func TestARefusalBeforeTheBodyIsHeard(t *testing.T) {
	for _, secure := range []bool{false, true} {
		for status, heard := range map[string]bool{"413 Too Large": true, "403 Forbidden": true, "201 Created": false} {
			address, o := refusing(t, secure, status)
			transport := New(o)
			answer, err := transport.Do(newRequest(t, "PUT", address, strings.Repeat("x", 900_000)))
			switch {
			case heard && (err != nil || answer.Status != status):
				t.Errorf("TLS %v: %s is heard as %v, %v", secure, status, answer, err)
			case !heard && err == nil:
				t.Errorf("TLS %v: %s to half a request is taken", secure, status)
			}
			if err == nil {
				answer.Body.Close()
			}
			if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
				t.Errorf("TLS %v: %v", secure, err)
			}
			if n := idle(transport, func(*conn) bool { return true }); n != 0 {
				t.Errorf("TLS %v: %d connections are kept", secure, n)
			}
			transport.Close()
		}
	}
}

// refusing is a server that answers when it has read the head of a request, and hangs up.
// Its sockets hold little, so that the request cannot be sent whole before.
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
