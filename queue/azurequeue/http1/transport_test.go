package http1

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// noFallback fails a test that would need one.
func noFallback(t *testing.T) transporter {
	return func(r *http.Request) (*http.Response, error) {
		t.Errorf("%s %v went to the fallback", r.Method, r.URL)
		return nil, errors.New("fallback")
	}
}

// said sends a request and returns the answer's body.
func said(t *testing.T, transport *Transport, r *http.Request) (string, error) {
	t.Helper()
	answer, err := transport.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	if answer.Request != r {
		t.Error("the answer does not know its request")
	}
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// scripted is a server that answers each connection's requests in order, and closes
// the connection when the script ends.
func scripted(t *testing.T, script ...string) (address string, requests, connections *atomic.Int64) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	requests, connections = new(atomic.Int64), new(atomic.Int64)
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			work.Go(func() {
				defer c.Close()
				in := bufio.NewReader(c)
				for _, answer := range script {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					io.Copy(io.Discard, r.Body)
					requests.Add(1)
					io.WriteString(c, answer)
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); work.Wait() })
	return l.Addr().String(), requests, connections
}

const empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// A connection that breaks under a request is an error, at its first request and at
// a later one: whether the server acted is not known, so nothing is repeated.
//
// Requirement B-01.
func TestNothingIsSentTwice(t *testing.T) {
	for name, c := range map[string]struct {
		script []string
		good   int
	}{
		"new connection":  {[]string{""}, 0},
		"used connection": {[]string{empty, ""}, 1},
		"within the head": {[]string{empty, "HTTP/1.1 200 OK\r\nCont"}, 1},
		"within the body": {[]string{empty, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc"}, 1},
	} {
		for _, method := range []string{"GET", "DELETE", "POST", "PUT"} {
			address, requests, _ := scripted(t, c.script...)
			transport := New(&Options{Fallback: noFallback(t)})
			for range c.good {
				if _, err := said(t, transport, newRequest(t, method, "http://"+address+"/?sig=S3cret", "")); err != nil {
					t.Errorf("%s, %s: got the error %v, want none", name, method, err)
				}
			}
			_, err := said(t, transport, newRequest(t, method, "http://"+address+"/?sig=S3cret", ""))
			if dial := (*net.OpError)(nil); err == nil || strings.Contains(err.Error(), "S3cret") || errors.As(err, &dial) && dial.Op == "dial" {
				t.Errorf("%s, %s: %v", name, method, err)
			}
			if n := requests.Load(); n != int64(len(c.script)) {
				t.Errorf("%s, %s: %d requests, want %d", name, method, n, len(c.script))
			}
			transport.Close()
		}
	}
}

// A connection that the server has closed meanwhile costs no request.
func TestClosedIdleConnectionIsNoticed(t *testing.T) {
	if !canPeek {
		t.Skip("sockets cannot be looked at on this system")
	}
	address, requests, connections := scripted(t, empty)
	transport := New(&Options{Fallback: noFallback(t)})
	defer transport.Close()
	for i := range 5 {
		if _, err := said(t, transport, newRequest(t, "GET", "http://"+address, "")); err != nil {
			t.Errorf("request %d: got the error %v, want none", i, err)
		}
		// Until the server's end has arrived.
		for idle(transport, func(c *conn) bool { return c.isReusable() }) > 0 {
		}
	}
	if requests.Load() != 5 || connections.Load() != 5 {
		t.Errorf("5 calls were %d requests on %d connections", requests.Load(), connections.Load())
	}
}

// idle counts the idle connections of which something is true.
func idle(t *Transport, is func(*conn) bool) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.hosts {
		for _, c := range h.idle {
			if is(c) {
				n++
			}
		}
	}
	return n
}

// More than was asked for is an answer to nothing: the connection is not used again.
func TestSurplusEndsTheConnection(t *testing.T) {
	address, _, connections := scripted(t, empty+"HTTP/1.1 500 Not For You\r\nContent-Length: 0\r\n\r\n", empty)
	transport := New(&Options{Fallback: noFallback(t)})
	defer transport.Close()
	for range 3 {
		if _, err := said(t, transport, newRequest(t, "GET", "http://"+address, "")); err != nil {
			t.Error(err)
		}
	}
	if n := connections.Load(); n != 3 {
		t.Errorf("3 calls used %d connections", n)
	}
}

// Nothing can have been sent, and azurequeue must be able to tell.
func TestDialErrorsAreDialErrors(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close() // nobody is there
	transport := New(&Options{Fallback: noFallback(t)})
	defer transport.Close()
	for address, want := range map[string]func(error) bool{
		"http://" + l.Addr().String():                         func(error) bool { return true },
		"https://" + strings.TrimPrefix(plain.URL, "http://"): func(err error) bool { return errors.Is(err, http.ErrSchemeMismatch) },
		secure.URL: func(err error) bool {
			certificate := (*tls.CertificateVerificationError)(nil)
			return errors.As(err, &certificate)
		},
	} {
		_, err := said(t, transport, newRequest(t, "GET", address, ""))
		if dial := (*net.OpError)(nil); !errors.As(err, &dial) || dial.Op != "dial" || !want(err) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestTLS(t *testing.T) {
	var connections atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.TLS == nil || r.TLS.NegotiatedProtocol != "http/1.1" {
			t.Errorf("request of %s, TLS %+v", r.Proto, r.TLS)
		}
		body, err := io.ReadAll(r.Body) // a server that answers before would cut it off
		if err != nil {
			t.Error(err)
		}
		w.Write(body)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.StartTLS()
	defer s.Close()
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	transport := New(&Options{TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, Fallback: noFallback(t)})
	defer transport.Close()
	text := strings.Repeat("0123456789", 10_000)
	for range 5 {
		if got, err := said(t, transport, newRequest(t, "POST", s.URL+"/?a=b", text)); err != nil || got != text {
			t.Errorf("%d bytes came back, %v", len(got), err)
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("5 calls in a row used %d connections", n)
	}
}

// piped is a server in memory: handle gets the server's end of each connection.
func piped(handle func(net.Conn)) *Options {
	return &Options{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			here, there := net.Pipe()
			go handle(there)
			return here, nil
		},
		Fallback: transporter(func(*http.Request) (*http.Response, error) { return nil, errors.New("fallback") }),
	}
}

func TestARequestEndsWithItsContext(t *testing.T) {
	cause := errors.New("the worker stops")
	for name, script := range map[string]string{
		"no answer": "", "half a head": "HTTP/1.1 200 OK\r\nConte", "half a body": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", "half a chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\na",
	} {
		synctest.Test(t, func(t *testing.T) {
			transport := New(piped(func(c net.Conn) {
				http.ReadRequest(bufio.NewReader(c))
				io.WriteString(c, script)
				io.Copy(io.Discard, c) // until the other end is closed
				c.Close()
			}))
			defer transport.Close()
			begin := time.Now()
			late, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, cause)
			_, err := transport.Do(newRequest(t, "GET", "http://host/", "").WithContext(late))
			cancel()
			if !errors.Is(err, cause) || time.Since(begin) != 3*time.Second {
				t.Errorf("%s: %v after %v", name, err, time.Since(begin))
			}
			stopped, stop := context.WithCancelCause(t.Context())
			time.AfterFunc(5*time.Second, func() { stop(cause) })
			begin = time.Now()
			_, err = transport.Do(newRequest(t, "GET", "http://host/", "").WithContext(stopped))
			if !errors.Is(err, cause) || time.Since(begin) != 5*time.Second {
				t.Errorf("%s: %v after %v", name, err, time.Since(begin))
			}
			if _, err = transport.Do(newRequest(t, "GET", "http://host/", "").WithContext(stopped)); !errors.Is(err, cause) {
				t.Errorf("%s: a context that is over: %v", name, err)
			}
			if n := idle(transport, func(*conn) bool { return true }); n != 0 {
				t.Errorf("%s: %d connections are kept", name, n)
			}
		})
	}
}

// echoing answers every request of a connection.
func echoing(opened, ended *atomic.Int64) func(net.Conn) {
	return func(c net.Conn) {
		opened.Add(1)
		defer ended.Add(1)
		defer c.Close()
		for in := bufio.NewReader(c); ; {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			io.Copy(io.Discard, r.Body)
			time.Sleep(time.Millisecond)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
		}
	}
}

func TestIdleConnectionsAreClosedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened, ended atomic.Int64
		o := piped(echoing(&opened, &ended))
		o.IdleTimeout = time.Minute
		transport := New(o)
		defer transport.Close()
		burst := func(n int) {
			var all sync.WaitGroup
			for range n {
				all.Go(func() {
					if text, err := said(t, transport, newRequest(t, "GET", "http://host/", "")); err != nil || text != "hello" {
						t.Errorf("%q, %v", text, err)
					}
				})
			}
			all.Wait()
		}
		burst(3)
		time.Sleep(500 * time.Millisecond)
		burst(1)
		if opened.Load() != 3 {
			t.Errorf("%d connections opened, want 3", opened.Load())
		}
		time.Sleep(59800 * time.Millisecond) // the two others have been idle for longer than a minute
		synctest.Wait()
		if ended.Load() != 2 {
			t.Errorf("%d connections have ended, want 2", ended.Load())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if ended.Load() != 3 {
			t.Errorf("%d connections have ended, want 3", ended.Load())
		}
		burst(1)
		transport.Close()
		synctest.Wait()
		if opened.Load() != 4 || ended.Load() != 4 {
			t.Errorf("after Close %d of %d connections have ended", ended.Load(), opened.Load())
		}
		burst(2) // which still works, and keeps nothing
		synctest.Wait()
		if opened.Load() != 6 || ended.Load() != 6 {
			t.Errorf("after that %d of %d connections have ended", ended.Load(), opened.Load())
		}
	})
}

// A pipe cannot be looked at, so what has been idle for long is not trusted.
func TestUnseenConnectionsAreTrustedShortly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened, ended atomic.Int64
		transport := New(piped(echoing(&opened, &ended)))
		defer transport.Close()
		for _, pause := range []time.Duration{0, maxIdleUnchecked / 2, 2 * maxIdleUnchecked} {
			time.Sleep(pause)
			if _, err := said(t, transport, newRequest(t, "GET", "http://host/", "")); err != nil {
				t.Error(err)
			}
		}
		if opened.Load() != 2 {
			t.Errorf("%d connections opened, want 2", opened.Load())
		}
	})
}

// Many at once get each their own answer, and the pool keeps no more than it may.
func TestManyAtOnce(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.URL.RawQuery) // small ones have a length
		for range len(r.URL.RawQuery) % 3 * 1000 {
			io.WriteString(w, r.URL.RawQuery) // others come in chunks
		}
	}))
	defer s.Close()
	transport := New(&Options{Connections: 5, Fallback: noFallback(t)})
	defer transport.Close()
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			for n := range 30 {
				query := strings.Repeat(string(rune('A'+i)), n+1)
				want := query + strings.Repeat(query, len(query)%3*1000)
				if got, err := said(t, transport, newRequest(t, "GET", s.URL+"/?"+query, "")); err != nil || got != want {
					t.Errorf("%d bytes came back, want %d, %v", len(got), len(want), err)
					return
				}
			}
		})
	}
	all.Wait()
	if n := idle(transport, func(*conn) bool { return true }); n > 5 {
		t.Errorf("%d connections are kept", n)
	}
}

// The default fallback is net/http with the same options.
func TestTheDefaultFallbackWorks(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}
	}))
	defer s.Close()
	transport := New(nil)
	defer transport.Close()
	for _, method := range []string{"HEAD", "PATCH", "GET"} {
		answer, err := transport.Do(newRequest(t, method, s.URL+"/", ""))
		if err != nil || answer.StatusCode != http.StatusFound {
			t.Fatalf("%s: %+v, %v", method, answer, err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
	}
}

// BenchmarkExchange is one request and its answer over a socket, with and without TLS: here,
// and with net/http. A delete is small; a put has 48 KiB.
func BenchmarkExchange(b *testing.B) {
	answer := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	}
	plain := httptest.NewServer(http.HandlerFunc(answer))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(answer))
	defer secure.Close()
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	ours := New(&Options{TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}})
	defer ours.Close()
	theirs := ours.options.newFallback()
	defer theirs.CloseIdleConnections()
	text := strings.Repeat("0123456789abcdef", 3<<10)
	for _, to := range []struct{ name, address string }{{"plain", plain.URL}, {"tls", secure.URL}} {
		for _, what := range []struct{ method, path, body string }{{"DELETE", "/q/messages/1?popreceipt=r", ""}, {"PUT", "/q/messages/1?popreceipt=r", text}} {
			for _, by := range []struct {
				name string
				do   func(*http.Request) (*http.Response, error)
			}{{"http1", ours.Do}, {"net-http", theirs.Do}} {
				b.Run(to.name+"/"+what.method+"/"+by.name, func(b *testing.B) {
					ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
					defer cancel()
					b.ReportAllocs()
					for b.Loop() {
						r := newRequest(b, what.method, to.address+what.path, what.body, "x-ms-version", "2026-04-06").WithContext(ctx)
						answer, err := by.do(r)
						if err != nil {
							b.Fatal(err)
						}
						answer.Body.Close()
					}
				})
			}
		}
	}
}
