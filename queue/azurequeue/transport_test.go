package azurequeue

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

// breaking is a server that responds to the first request of a connection and closes it at the
// second one without a response. net/http would then repeat a GET.
func breaking(t *testing.T) (address string, requests *atomic.Int64) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	requests = new(atomic.Int64)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			in := bufio.NewReader(c)
			for i := range 2 {
				r, err := http.ReadRequest(in)
				if err != nil {
					break
				}
				io.Copy(io.Discard, r.Body)
				requests.Add(1)
				if i == 0 {
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n<QueueMessagesList/>")
				}
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String(), requests
}

// One call is one request, also when the connection breaks, with any transport: a dequeue that
// net/http repeats would hide a second batch.
func TestBrokenConnectionIsNotRetried(t *testing.T) {
	for name, o := range map[string]*Options{"own transport": nil, "another": {Transport: &http.Client{Transport: &http.Transport{}}}} {
		address, requests := breaking(t)
		q, err := Open("http://"+address+"/acct?"+someSAS, "orders", o)
		if err != nil {
			t.Fatal(err)
		}
		if batch, err := q.Dequeue(t.Context(), 1, time.Second); err != nil || len(batch) != 0 {
			t.Fatalf("%s: first dequeue: got %v, %v; want no messages", name, batch, err)
		}
		_, err = q.Dequeue(t.Context(), 1, time.Second)
		if !errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Errorf("%s: second dequeue: got %v, want ErrOutcomeUnknown", name, err)
		}
		if n := requests.Load(); n != 2 {
			t.Errorf("%s: requests of two calls: got %d, want 2", name, n)
		}
		q.Close()
	}
}

// By default the SDK repeats requests after these responses.
func TestErrorResponsesAreNotRetried(t *testing.T) {
	for _, status := range []int{408, 429, 500, 502, 503, 504} {
		requests := 0
		q := openCanned(t, func(r *http.Request) (*http.Response, error) {
			requests++
			return responding(status, "")(r)
		})
		calls := 0
		for op, do := range operations(q) {
			calls++
			if err := do(t.Context()); err == nil || requests != calls {
				t.Errorf("%s: status %d: got %d requests for %d calls, %v; want one each and an error", op, status, requests, calls, err)
			}
		}
	}
}

// The service sends no redirects, and following one would be a second request.
func TestRedirectIsNotFollowed(t *testing.T) {
	var requests atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		http.Redirect(w, r, "/login", http.StatusTemporaryRedirect)
	}))
	defer s.Close()
	q, err := Open(s.URL+"/acct?"+someSAS, "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if _, err := q.Enqueue(t.Context(), "x", nil); !errors.Is(err, queue.ErrOutcomeUnknown) || requests.Load() != 1 {
		t.Errorf("after %d requests: got %v, want ErrOutcomeUnknown", requests.Load(), err)
	}
}

// An empty body that is not http.NoBody sends no body.
func TestGetHasNoBodyOnTheWire(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 || len(r.TransferEncoding) != 0 || r.Method != http.MethodGet {
			t.Errorf("request: got %s with length %d and encoding %q, want a GET without a body", r.Method, r.ContentLength, r.TransferEncoding)
		}
		w.Header().Set("x-ms-approximate-messages-count", "3")
	}))
	defer s.Close()
	q, err := Open(s.URL+"/acct?"+someSAS, "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	if p, err := q.Properties(t.Context()); err != nil || p.Depth != 3 {
		t.Errorf("depth: got %d, %v; want 3", p.Depth, err)
	}
}

// TestBurstsReuseConnections repeats 64 concurrent calls, which must reuse the first connections.
func TestBurstsReuseConnections(t *testing.T) {
	var opened atomic.Int64
	arrived := make(chan struct{}, 64)
	release := make(chan struct{})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-release
		w.WriteHeader(http.StatusNoContent)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			opened.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	q, err := Open(s.URL+"/acct?"+someSAS, "orders", &Options{TryTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	for range 3 {
		failed := make(chan error)
		for range 64 {
			go func() { failed <- q.Delete(context.Background(), someLease) }()
		}
		for range 64 {
			<-arrived
		}
		for range 64 {
			release <- struct{}{}
		}
		for range 64 {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
	}
	if n := opened.Load(); n > 80 { // with a pool of 10 they are over 150
		t.Errorf("connections of 192 calls, 64 at once: got %d, want at most 80", n)
	}
}

// A transport may change the headers of a request. No other request has them.
func TestATransportMayChangeHeaders(t *testing.T) {
	var sent []http.Header
	q, err := Open("AccountName=acct;AccountKey=c2VjcmV0", "orders", &Options{Transport: canned(func(r *http.Request) (*http.Response, error) {
		sent = append(sent, r.Header.Clone())
		for _, values := range r.Header {
			_ = append(values, "another")
			values[0] = "changed"
		}
		return responding(http.StatusNoContent, "")(r)
	})})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := q.Delete(t.Context(), someLease); err != nil {
			t.Error(err)
		}
	}
	for name, values := range sent[1] {
		if values[0] == "changed" || len(values) != 1 {
			t.Errorf("header %s of the second request: got %q, want it as if there were no first", name, values)
		}
	}
}

// countingConn counts the writes to a connection.
type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countingConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// Over net/http a request is one write, its body included, and our own client asks for no compression, which costs a
// header and a look at each response.
func TestARequestIsWrittenAtOnce(t *testing.T) {
	var compressed atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept-Encoding") != "" {
			compressed.Add(1)
		}
		io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer s.Close()
	location := "AccountName=acct;AccountKey=c2VjcmV0;QueueEndpoint=" + s.URL + "/acct"
	var writes atomic.Int64
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return countingConn{c, &writes}, err
	}}
	defer transport.CloseIdleConnections()
	q, err := Open(location, "orders", &Options{Transport: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := q.Enqueue(t.Context(), "text", nil); !errors.Is(err, queue.ErrUnauthorized) {
			t.Fatal(err)
		}
	}
	if n := writes.Load(); n != 3 {
		t.Errorf("got %d writes for 3 messages, want one for each", n)
	}
	compressed.Store(0)
	own, err := Open(location, "orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if _, err := own.Enqueue(t.Context(), "text", nil); !errors.Is(err, queue.ErrUnauthorized) || compressed.Load() != 0 {
		t.Errorf("got %v and %d requests that accept compression, want none", err, compressed.Load())
	}
}
