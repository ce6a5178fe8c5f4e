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

// overtaken is a connection on which the answer has come whole when its request is given
// up: what is read last returns when the deadline that ends the request is set.
type overtaken struct {
	net.Conn
	giveUp  func()
	aborted chan struct{}
}

func (o *overtaken) Read(p []byte) (int, error) {
	n, err := o.Conn.Read(p)
	if o.giveUp != nil && n > 0 {
		o.giveUp()
		o.giveUp = nil
		<-o.aborted
	}
	return n, err
}

func (o *overtaken) SetDeadline(t time.Time) error {
	err := o.Conn.SetDeadline(t)
	close(o.aborted)
	return err
}

// A request that was given up may have left its connection with a deadline in the past,
// whatever came of it: nobody gets it.
func TestAConnectionIsNotKeptAfterItsRequestWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened, ended atomic.Int64
		o := piped(echoing(&opened, &ended))
		stopped, stop := context.WithCancel(t.Context())
		dial, first := o.DialContext, true
		o.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := dial(ctx, network, address)
			if first {
				first = false
				c = &overtaken{Conn: c, giveUp: stop, aborted: make(chan struct{})}
			}
			return c, err
		}
		transport := New(o)
		defer transport.Close()
		text, err := said(t, transport, newRequest(t, "GET", "http://host/", "").WithContext(stopped))
		if err == nil && text != "hello" || err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("%q, %v", text, err)
		}
		if n := idle(transport, func(*conn) bool { return true }); n != 0 {
			t.Errorf("%d connections are kept", n)
		}
		if text, err := said(t, transport, newRequest(t, "GET", "http://host/", "")); err != nil || text != "hello" {
			t.Errorf("the next request: %q, %v", text, err)
		}
		if opened.Load() != 2 {
			t.Errorf("%d connections were opened, want 2", opened.Load())
		}
	})
}

// A body that is closed twice gives its buffer back once: two answers must not share it.
func TestABodyThatIsClosedTwiceGivesItsBufferBackOnce(t *testing.T) {
	for range 100 { // the pool need not keep what it is given
		answer, _, err := cannedConn("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", false).readResponse()
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := answer.Body.Close(); err != nil {
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
			t.Fatalf("three answers at once are %q", got)
		}
		for _, b := range bodies {
			b.Close()
		}
	}
}

// A body that could not be read whole gives its buffer back, too, and once.
func TestAnswersOfBrokenConnectionsShareNoBuffer(t *testing.T) {
	for range 100 {
		for _, broken := range []string{"Content-Length: 9\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc", "Content-Length: x\r\n\r\n", "Content-Length: 0\r\n\r\n"} {
			if answer, _, err := cannedConn("HTTP/1.1 200 OK\r\n"+broken, false).readResponse(); err == nil {
				if answer.Body != http.NoBody {
					t.Fatalf("%q has a body", broken)
				}
				answer.Body.Close()
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
				t.Fatalf("after %q: %q, %v", broken, text, err)
			}
			one.Body.Close()
			two.Body.Close()
		}
	}
}
