package plainhttp

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// held is a handler that responds when it is released, or when its context ends.
type held struct {
	entered chan struct{}
	release chan struct{}
}

func newHeld() *held { return &held{make(chan struct{}), make(chan struct{})} }

func (h *held) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/hold" {
		h.entered <- struct{}{}
		select {
		case <-h.release:
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
	io.Copy(io.Discard, r.Body)
	io.WriteString(w, "done")
}

const (
	hold    = "GET /hold HTTP/1.1\r\n" + host + "\r\n"
	oddHold = "POST /hold HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
)

// readOK reads a response, which must be 200, and reports whether the connection is closed after it.
func readOK(t *testing.T, in *bufio.Reader) (closing bool) {
	t.Helper()
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); string(body) != "done" || err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("response: got %s %q, %v; want 200", response.Status, body, err)
	}
	return response.Close
}

// ended checks that the server has closed the connection without a response.
func ended(t *testing.T, in io.Reader) {
	t.Helper()
	if text, err := io.ReadAll(in); len(text) > 0 || err != nil {
		t.Errorf("got %q, %v; want the connection closed", text, err)
	}
}

// TestShutdown: idle connections of every kind are closed at once, and requests in progress get their
// responses, here and with net/http.
func TestShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld()
		s, l, stop := serving(&http.Server{Handler: h})
		defer stop()
		fresh, half, used := l.dial(), l.dial(), l.dial()
		io.WriteString(half, "GET / HT")
		io.WriteString(used, get)
		readOK(t, bufio.NewReader(used))
		busy, odd := l.dial(), l.dial()
		io.WriteString(busy, hold)
		<-h.entered
		io.WriteString(odd, oddHold)
		<-h.entered
		done := make(chan error, 1)
		go func() { done <- s.Shutdown(t.Context()) }()
		begin := time.Now()
		for _, c := range []net.Conn{fresh, half, used} {
			ended(t, c)
		}
		if took := time.Since(begin); took > 0 {
			t.Errorf("idle connections closed: got after %v, want at once", took)
		}
		synctest.Wait()
		select {
		case err := <-done:
			t.Errorf("Shutdown returned %v while requests were in progress", err)
		default:
		}
		close(h.release)
		for _, c := range []net.Conn{busy, odd} {
			in := bufio.NewReader(c)
			if !readOK(t, in) {
				t.Error("the last response does not announce the close of the connection")
			}
			ended(t, in)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := s.Serve(newPipes()); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("it serves again: got %v, want ErrServerClosed", err)
		}
	})
}

// TestShutdownGivesUp: when its context ends, so do the contexts of requests.
func TestShutdownGivesUp(t *testing.T) {
	for name, text := range map[string]string{"plain": hold, "odd": oddHold} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHeld()
				s, l, stop := serving(&http.Server{Handler: h})
				defer stop()
				c := l.dial()
				io.WriteString(c, text)
				<-h.entered
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				ended(t, c)
			})
		})
	}
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHeld()
		s, l, stop := serving(&http.Server{Handler: h})
		defer stop()
		idle, busy := l.dial(), l.dial()
		io.WriteString(busy, get+hold) // the first answer is kept for the second
		<-h.entered
		s.Close()
		s.Close()
		ended(t, idle)
		ended(t, busy)
	})
}

// TestCloseBeforeServing: Close does not wait for a server that was never used.
func TestCloseBeforeServing(t *testing.T) {
	s := New(&http.Server{Handler: newHeld()})
	if err := s.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if err := s.Serve(newPipes()); !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
}

// TestShutdownAtAnyMoment shuts the server down while clients connect, send ordinary and other
// requests, and leave. Each response that begins must be complete; goleak and the return of Shutdown
// show that nothing is left.
func TestShutdownAtAnyMoment(t *testing.T) {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := New(&http.Server{Handler: newHeld()})
		served := make(chan error, 1)
		go func() { served <- s.Serve(l) }()
		var clients sync.WaitGroup
		for i := range 6 {
			clients.Go(func() {
				c, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					return // it is closed already
				}
				defer c.Close()
				switch i % 3 {
				case 0: // nothing
				case 1:
					io.WriteString(c, strings.Repeat(get, 5))
				default:
					io.WriteString(c, get+strings.Replace(oddHold, "/hold", "/", 1)+get)
				}
				c.(*net.TCPConn).CloseWrite()
				in := bufio.NewReader(c)
				for {
					if _, err := in.Peek(1); err != nil {
						return
					}
					readOK(t, in)
				}
			})
		}
		runtime.Gosched()
		if err := s.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		clients.Wait()
	}
}

// TestSlowClientsAreCutOff: the connection of a slow client is closed after its time-out, and at most
// a sixteenth later.
func TestSlowClientsAreCutOff(t *testing.T) {
	const header, request, idle = 10 * time.Second, 30 * time.Second, 2 * time.Minute
	for name, c := range map[string]struct {
		sends string
		after time.Duration
	}{
		"nothing":              {"", header},
		"half a line":          {"GET /", header},
		"half a head":          {"GET / HTTP/1.1\r\nHost: a\r\n", header},
		"half a body":          {"PUT / HTTP/1.1\r\n" + host + "Content-Length: 9\r\n\r\nabc", request},
		"no other request":     {get, idle},
		"half a second one":    {get + "GET / HTT", header},
		"very little":          {get + "G", header},
		"half a second head":   {get + put + "GET / HTTP/1.1\r\nHo", header},
		"half of an odd one":   {get + "POST / HTTP/1.1\r\n" + host + "Expect: 100-continue\r\nA", header},
		"odd, and then no one": {strings.Replace(oddHold, "/hold", "/", 1), idle},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, l, stop := serving(&http.Server{Handler: newHeld(), ReadHeaderTimeout: header, ReadTimeout: request, WriteTimeout: time.Minute, IdleTimeout: idle})
				defer stop()
				client := l.dial()
				defer client.Close()
				begin := time.Now()
				go io.WriteString(client, c.sends) // ends when the server closes the connection
				if _, err := io.Copy(io.Discard, client); err != nil {
					t.Error(err)
				}
				if took := time.Since(begin); took < c.after || took > c.after+c.after/16 {
					t.Errorf("closed after: got %v, want %v", took, c.after)
				}
			})
		})
	}
}

// TestTimeoutsRestartWithEachRequest: a busy client is not cut off.
func TestTimeoutsRestartWithEachRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, stop := serving(&http.Server{Handler: newHeld(), ReadHeaderTimeout: time.Second, ReadTimeout: time.Second, WriteTimeout: time.Second, IdleTimeout: time.Minute})
		defer stop()
		c := l.dial()
		defer c.Close()
		in := bufio.NewReader(c)
		for range 50 {
			for _, piece := range []string{"PUT / HTTP/1.1\r\nHo", "st: a\r\nContent-Length: 6\r\n\r\nabc", "def"} {
				io.WriteString(c, piece)
				time.Sleep(900 * time.Millisecond) // on the clock of the bubble
			}
			readOK(t, in)
			time.Sleep(59 * time.Second)
		}
	})
}

// TestUnreadResponseIsCutOff: writing has a time-out too.
func TestUnreadResponseIsCutOff(t *testing.T) {
	for name, path := range map[string]string{"buffered": "/", "at once": "/large"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, l, stop := serving(&http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/large" {
						w.Header().Set("Content-Length", "65536")
					}
					w.Write(make([]byte, 64<<10))
				}), WriteTimeout: time.Minute})
				defer stop()
				c := l.dial() // a pipe: what is not read blocks who writes
				begin := time.Now()
				io.WriteString(c, "GET "+path+" HTTP/1.1\r\n"+host+"\r\n")
				var first [10]byte
				io.ReadFull(c, first[:])
				time.Sleep(2 * time.Minute) // on the clock of the bubble
				rest, err := io.ReadAll(c)
				if len(rest) >= 64<<10 || err != nil {
					t.Errorf("got %d bytes after %v, %v; want the connection closed", len(rest), time.Since(begin), err)
				}
			})
		})
	}
}

// TestFailedBodyEndsTheContext: the context of a request ends when its body cannot be read.
func TestFailedBodyEndsTheContext(t *testing.T) {
	errs := make(chan error, 2)
	_, l, stop := serving(&http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		errs <- err
		errs <- r.Context().Err()
	})})
	defer stop()
	ask(l, []string{"PUT / HTTP/1.1\r\n" + host + "Content-Length: 9\r\n\r\nabc"})
	if err := <-errs; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if err := <-errs; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestPanic: a panic is logged with its stack and closes one connection, after earlier responses were
// sent. An abort is not logged.
func TestPanic(t *testing.T) {
	for how, logged := range map[string]bool{"panic": true, "abort": false} {
		t.Run(how, func(t *testing.T) {
			var said strings.Builder // written before the connection is closed
			_, l, stop := serving(&http.Server{ErrorLog: log.New(&said, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if io.WriteString(w, "done"); r.URL.Path == "/" {
					return
				}
				if how == "abort" {
					panic(http.ErrAbortHandler)
				}
				panic("on purpose")
			})})
			defer stop()
			s := ask(l, []string{get + "GET /bad HTTP/1.1\r\n" + host + "\r\n" + get})
			in := bufio.NewReader(strings.NewReader(string(s.sent)))
			readOK(t, in)
			ended(t, in)
			readOK(t, bufio.NewReader(strings.NewReader(string(ask(l, []string{get}).sent))))
			if got := strings.Contains(said.String(), "http: panic serving client: on purpose\ngoroutine "); got != logged {
				t.Errorf("log: got %q", said.String())
			}
		})
	}
}

// TestConnectionInContext: ConnContext gets the accepted connection once, also if it is handed over
// to net/http.
func TestConnectionInContext(t *testing.T) {
	_, l, stop := serving(&http.Server{Handler: http.HandlerFunc(mirror), ConnContext: withScript})
	defer stop()
	if s := ask(l, []string{get + "GET / HTTP/1.0\r\n\r\n"}); len(s.seen) != 2 {
		t.Error(s.seen)
	}
}

// TestPipelinedResponsesAreSentTogether: the responses to requests that arrive together are sent
// together, and none waits for an incomplete request.
func TestPipelinedResponsesAreSentTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, l, stop := serving(&http.Server{Handler: newHeld()})
		defer stop()
		c := l.dial()
		defer c.Close()
		io.WriteString(c, get+get+get+"PUT / HTTP/1.1\r\n"+host+"Content-Length: 6\r\n\r\nabc")
		room := make([]byte, 4096)
		n, err := c.Read(room) // as much as one write has brought
		if got := strings.Count(string(room[:n]), "HTTP/1.1 200"); got != 3 || err != nil {
			t.Errorf("responses in one read: got %d, %v: %q", got, err, room[:n])
		}
		io.WriteString(c, "def")
		readOK(t, bufio.NewReader(c))
	})
}
