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

// noFallback returns a fallback that fails the test when it is used.
func noFallback(t *testing.T) transporter {
	return func(r *http.Request) (*http.Response, error) {
		t.Errorf("%s %v: got a request to the fallback, want none", r.Method, r.URL)
		return nil, errors.New("fallback")
	}
}

// fetch sends a request and returns the body of the response.
func fetch(t *testing.T, transport *Transport, r *http.Request) (string, error) {
	t.Helper()
	resp, err := transport.Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.Request != r {
		t.Errorf("Response.Request: got %p, want %p", resp.Request, r)
	}
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}

// scripted starts a server that sends the script's responses on each connection, in order, and then
// closes the connection.
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
				for _, response := range script {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					io.Copy(io.Discard, r.Body)
					requests.Add(1)
					io.WriteString(c, response)
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); work.Wait() })
	return l.Addr().String(), requests, connections
}

const empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

// A connection that breaks during a request is an error, at its first request and at a later one.
// Whether the server executed the request is unknown, so it is not repeated.
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
			transport := must(New(&Options{Fallback: noFallback(t)}))
			for range c.good {
				if _, err := fetch(t, transport, newRequest(t, method, "http://"+address+"/?sig=S3cret", "")); err != nil {
					t.Errorf("%s, %s: got the error %v, want none", name, method, err)
				}
			}
			_, err := fetch(t, transport, newRequest(t, method, "http://"+address+"/?sig=S3cret", ""))
			if dial := (*net.OpError)(nil); err == nil || strings.Contains(err.Error(), "S3cret") || errors.As(err, &dial) && dial.Op == "dial" {
				t.Errorf("%s, %s: got %v, want an error that is no dial error and has no secret in it", name, method, err)
			}
			if n := requests.Load(); n != int64(len(c.script)) {
				t.Errorf("%s, %s: requests: got %d, want %d", name, method, n, len(c.script))
			}
			transport.Close()
		}
	}
}

// A connection that the server closed while it was idle fails no request.
func TestClosedIdleConnectionIsNoticed(t *testing.T) {
	if !canPeek {
		t.Skip("this system cannot peek at sockets")
	}
	address, requests, connections := scripted(t, empty)
	transport := must(New(&Options{Fallback: noFallback(t)}))
	defer transport.Close()
	for i := range 5 {
		if _, err := fetch(t, transport, newRequest(t, "GET", "http://"+address, "")); err != nil {
			t.Errorf("request %d: got the error %v, want none", i, err)
		}
		// Wait until the server's close has arrived.
		for idle(transport, func(c *conn) bool { return c.isReusable() }) > 0 {
		}
	}
	if requests.Load() != 5 || connections.Load() != 5 {
		t.Errorf("5 calls: got %d requests on %d connections, want 5 on 5", requests.Load(), connections.Load())
	}
}

// idle counts the idle connections that match.
func idle(t *Transport, match func(*conn) bool) (n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.hosts {
		for _, c := range h.idle {
			if match(c) {
				n++
			}
		}
	}
	return n
}

// A connection with bytes after the response is not reused: they belong to no request.
func TestAConnectionWithSurplusBytesIsNotReused(t *testing.T) {
	address, _, connections := scripted(t, empty+"HTTP/1.1 500 Not For You\r\nContent-Length: 0\r\n\r\n", empty)
	transport := must(New(&Options{Fallback: noFallback(t)}))
	defer transport.Close()
	for range 3 {
		if _, err := fetch(t, transport, newRequest(t, "GET", "http://"+address, "")); err != nil {
			t.Error(err)
		}
	}
	if n := connections.Load(); n != 3 {
		t.Errorf("connections of 3 calls: got %d, want 3", n)
	}
}

// Before a connection exists nothing was sent. azurequeue recognizes that by the dial error.
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
	l.Close() // nothing listens there any more
	transport := must(New(&Options{Fallback: noFallback(t)}))
	defer transport.Close()
	for address, want := range map[string]func(error) bool{
		"http://" + l.Addr().String():                         func(error) bool { return true },
		"https://" + strings.TrimPrefix(plain.URL, "http://"): func(err error) bool { return errors.Is(err, http.ErrSchemeMismatch) },
		secure.URL: func(err error) bool {
			certificate := (*tls.CertificateVerificationError)(nil)
			return errors.As(err, &certificate)
		},
	} {
		_, err := fetch(t, transport, newRequest(t, "GET", address, ""))
		if dial := (*net.OpError)(nil); !errors.As(err, &dial) || dial.Op != "dial" || !want(err) {
			t.Errorf("%s: got %v, want a dial error with its cause", address, err)
		}
	}
}

func TestTLS(t *testing.T) {
	var connections atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 1 || r.TLS == nil || r.TLS.NegotiatedProtocol != "http/1.1" {
			t.Errorf("request: got %s, TLS %+v; want HTTP/1 negotiated over TLS", r.Proto, r.TLS)
		}
		body, err := io.ReadAll(r.Body) // first: a response before it is read would cut it off
		if err != nil {
			t.Errorf("body of the request: got the error %v, want none", err)
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
	transport := must(New(&Options{TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, Fallback: noFallback(t)}))
	defer transport.Close()
	text := strings.Repeat("0123456789", 10_000)
	for range 5 {
		if got, err := fetch(t, transport, newRequest(t, "POST", s.URL+"/?a=b", text)); err != nil || got != text {
			t.Errorf("echo: got %d bytes, %v; want the %d bytes sent", len(got), err, len(text))
		}
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("connections of 5 calls in a row: got %d, want 1", n)
	}
}

// piped returns options for a server in memory. handle receives the server's end of each connection.
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
		"no response": "", "half a head": "HTTP/1.1 200 OK\r\nConte", "half a body": "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", "half a chunk": "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\na",
	} {
		synctest.Test(t, func(t *testing.T) {
			transport := must(New(piped(func(c net.Conn) {
				http.ReadRequest(bufio.NewReader(c))
				io.WriteString(c, script)
				io.Copy(io.Discard, c) // until the client closes its end
				c.Close()
			})))
			defer transport.Close()
			begin := time.Now()
			late, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, cause)
			_, err := transport.Do(newRequest(t, "GET", "http://host/", "").WithContext(late))
			cancel()
			if !errors.Is(err, cause) || time.Since(begin) != 3*time.Second {
				t.Errorf("%s: got %v after %v, want the cause after 3s", name, err, time.Since(begin))
			}
			stopped, stop := context.WithCancelCause(t.Context())
			time.AfterFunc(5*time.Second, func() { stop(cause) })
			begin = time.Now()
			_, err = transport.Do(newRequest(t, "GET", "http://host/", "").WithContext(stopped))
			if !errors.Is(err, cause) || time.Since(begin) != 5*time.Second {
				t.Errorf("%s: got %v after %v, want the cause after 5s", name, err, time.Since(begin))
			}
			if _, err = transport.Do(newRequest(t, "GET", "http://host/", "").WithContext(stopped)); !errors.Is(err, cause) {
				t.Errorf("%s: ended context: got %v, want the cause", name, err)
			}
			if n := idle(transport, func(*conn) bool { return true }); n != 0 {
				t.Errorf("%s: idle connections: got %d, want 0", name, n)
			}
		})
	}
}

// echoing returns a handler that sends "hello" to every request of a connection.
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
		transport := must(New(o))
		defer transport.Close()
		burst := func(n int) {
			var all sync.WaitGroup
			for range n {
				all.Go(func() {
					if text, err := fetch(t, transport, newRequest(t, "GET", "http://host/", "")); err != nil || text != "hello" {
						t.Errorf("got %q, %v; want hello", text, err)
					}
				})
			}
			all.Wait()
		}
		burst(3)
		time.Sleep(500 * time.Millisecond)
		burst(1)
		if opened.Load() != 3 {
			t.Errorf("connections opened: got %d, want 3", opened.Load())
		}
		time.Sleep(59800 * time.Millisecond) // the other two have now been idle for over a minute
		synctest.Wait()
		if ended.Load() != 2 {
			t.Errorf("connections closed: got %d, want 2", ended.Load())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if ended.Load() != 3 {
			t.Errorf("connections closed: got %d, want 3", ended.Load())
		}
		burst(1)
		transport.Close()
		synctest.Wait()
		if opened.Load() != 4 || ended.Load() != 4 {
			t.Errorf("connections after Close: got %d closed of %d, want 4 of 4", ended.Load(), opened.Load())
		}
		burst(2) // still works, but keeps no connection
		synctest.Wait()
		if opened.Load() != 6 || ended.Load() != 6 {
			t.Errorf("connections after a burst that follows Close: got %d closed of %d, want 6 of 6", ended.Load(), opened.Load())
		}
	})
}

// Whether the server closed a pipe cannot be checked, so one that was idle for long is not reused.
func TestConnectionsThatCannotBeCheckedAreReusedOnlyBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened, ended atomic.Int64
		transport := must(New(piped(echoing(&opened, &ended))))
		defer transport.Close()
		for _, pause := range []time.Duration{0, maxIdleUnchecked / 2, 2 * maxIdleUnchecked} {
			time.Sleep(pause)
			if _, err := fetch(t, transport, newRequest(t, "GET", "http://host/", "")); err != nil {
				t.Errorf("after a pause of %v: got the error %v, want none", pause, err)
			}
		}
		if opened.Load() != 2 {
			t.Errorf("connections opened: got %d, want 2", opened.Load())
		}
	})
}

// Concurrent requests each get their own response, and the pool keeps no more than Connections.
func TestConcurrentRequests(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, r.URL.RawQuery) // small responses have a length
		for range len(r.URL.RawQuery) % 3 * 1000 {
			io.WriteString(w, r.URL.RawQuery) // larger ones are chunked
		}
	}))
	defer s.Close()
	transport := must(New(&Options{Connections: 5, Fallback: noFallback(t)}))
	defer transport.Close()
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			for n := range 30 {
				query := strings.Repeat(string(rune('A'+i)), n+1)
				want := query + strings.Repeat(query, len(query)%3*1000)
				if got, err := fetch(t, transport, newRequest(t, "GET", s.URL+"/?"+query, "")); err != nil || got != want {
					t.Errorf("response: got %d bytes, %v; want %d", len(got), err, len(want))
					return
				}
			}
		})
	}
	all.Wait()
	if n := idle(transport, func(*conn) bool { return true }); n > 5 {
		t.Errorf("idle connections: got %d, want at most 5", n)
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
	transport := must(New(nil))
	defer transport.Close()
	for _, method := range []string{"HEAD", "PATCH", "GET"} {
		resp, err := transport.Do(newRequest(t, method, s.URL+"/", ""))
		if err != nil || resp.StatusCode != http.StatusFound {
			t.Fatalf("%s: got %+v, %v; want status 302", method, resp, err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}

// BenchmarkExchange measures one request and its response over a socket, with and without TLS, with
// this package and with net/http. A delete is small; a put has 48 KiB.
func BenchmarkExchange(b *testing.B) {
	handler := func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusNoContent)
	}
	plain := httptest.NewServer(http.HandlerFunc(handler))
	defer plain.Close()
	secure := httptest.NewTLSServer(http.HandlerFunc(handler))
	defer secure.Close()
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	ours := must(New(&Options{TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}))
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
						resp, err := by.do(r)
						if err != nil {
							b.Fatal(err)
						}
						resp.Body.Close()
					}
				})
			}
		}
	}
}

// must returns the value of a constructor that must not fail.
func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

func TestNewRefusesInvalidOptions(t *testing.T) {
	for want, o := range map[string]Options{"Connections -1": {Connections: -1}, "IdleTimeout -1s": {IdleTimeout: -time.Second}} {
		if _, err := New(&o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error about %s", err, want)
		}
	}
}
