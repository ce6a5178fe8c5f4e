package http1

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// lateAbort is a connection whose request is cancelled when its response has already arrived: the
// first Read returns once the deadline that aborts the request is set.
type lateAbort struct {
	net.Conn
	giveUp  func()
	aborted chan struct{}
}

func (o *lateAbort) Read(p []byte) (int, error) {
	n, err := o.Conn.Read(p)
	if o.giveUp != nil && n > 0 {
		o.giveUp()
		o.giveUp = nil
		<-o.aborted
	}
	return n, err
}

func (o *lateAbort) SetDeadline(t time.Time) error {
	err := o.Conn.SetDeadline(t)
	close(o.aborted)
	return err
}

// A cancelled request may leave its connection with a deadline in the past, even if the response
// arrived. The connection must not return to the pool.
func TestTheConnectionOfACancelledRequestIsNotReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened, ended atomic.Int64
		o := piped(echoing(&opened, &ended))
		stopped, stop := context.WithCancel(t.Context())
		dial, first := o.DialContext, true
		o.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			if first {
				first = false
				c = &lateAbort{Conn: c, giveUp: stop, aborted: make(chan struct{})}
			}
			return c, err
		}
		transport := must(New(o))
		defer transport.Close()
		text, err := fetch(t, transport, newRequest(t, "GET", "http://host/", "").WithContext(stopped))
		if err == nil && text != "hello" || err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled request: got %q, %v; want hello or Canceled", text, err)
		}
		if n := idle(transport, func(*conn) bool { return true }); n != 0 {
			t.Errorf("idle connections: got %d, want 0", n)
		}
		if text, err := fetch(t, transport, newRequest(t, "GET", "http://host/", "")); err != nil || text != "hello" {
			t.Errorf("next request: got %q, %v; want hello", text, err)
		}
		if opened.Load() != 2 {
			t.Errorf("connections opened: got %d, want 2", opened.Load())
		}
	})
}

// A body that is closed twice returns its buffer to the pool once. Otherwise two responses would
// share it.
func TestABodyClosedTwiceReturnsItsBufferOnce(t *testing.T) {
	for range 100 { // the pool may drop buffers
		resp, _, err := cannedConn("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", false).readResponse()
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := resp.Body.Close(); err != nil {
				t.Fatal(err)
			}
		}
		var bodies []io.ReadCloser
		for _, text := range []string{"one", "two", "six"} {
			another, _, err := cannedConn("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"+text, false).readResponse()
			if err != nil {
				t.Fatal(err)
			}
			bodies = append(bodies, another.Body)
		}
		var all []string
		for _, b := range bodies {
			text, err := io.ReadAll(b)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(text))
		}
		if got := strings.Join(all, " "); got != "one two six" {
			t.Fatalf("three responses at once: got %q, want \"one two six\"", got)
		}
		for _, b := range bodies {
			b.Close()
		}
	}
}

// A body that breaks off returns its buffer once too.
func TestResponsesAfterABrokenOneShareNoBuffer(t *testing.T) {
	for range 100 {
		for _, broken := range []string{"Content-Length: 9\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc", "Content-Length: x\r\n\r\n", "Content-Length: 0\r\n\r\n"} {
			if resp, _, err := cannedConn("HTTP/1.1 200 OK\r\n"+broken, false).readResponse(); err == nil {
				if resp.Body != http.NoBody {
					t.Fatalf("%q: got a body, want none", broken)
				}
				resp.Body.Close()
			}
			one, _, err := cannedConn("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none", false).readResponse()
			if err != nil {
				t.Fatal(err)
			}
			two, _, err := cannedConn("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo", false).readResponse()
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(one.Body); string(text) != "one" || err != nil {
				t.Fatalf("body after %q: got %q, %v; want \"one\"", broken, text, err)
			}
			one.Body.Close()
			two.Body.Close()
		}
	}
}
