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

// breaking is a server that answers the first request of a connection and, at
// the second, closes it without a word: net/http would send a GET again.
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

// One call is one request, also when the connection breaks and whoever's the
// transport is: a dequeue that net/http repeats hides a second batch.
func TestBrokenConnectionIsNotRetried(t *testing.T) {
	for name, o := range map[string]*Options{"own transport": nil, "another": {Transport: &http.Client{Transport: &http.Transport{}}}} {
		address, requests := breaking(t)
		q, err := Open("http://"+address+"/acct?"+someSAS, "orders", o)
		if err != nil {
			t.Fatal(err)
		}
		if batch, err := q.Dequeue(t.Context(), 1, time.Second); err != nil || len(batch) != 0 {
			t.Fatalf("%s: first dequeue: %v, %v", name, batch, err)
		}
		_, err = q.Dequeue(t.Context(), 1, time.Second)
		if !errors.Is(err, queue.ErrOutcomeUnknown) {
			t.Errorf("%s: error is %v", name, err)
		}
		if n := requests.Load(); n != 2 {
			t.Errorf("%s: two calls were %d requests", name, n)
		}
		q.Close()
	}
}

// The SDK repeats requests for these answers unless told not to.
func TestAnswersAreNotRetried(t *testing.T) {
	for _, status := range []int{408, 429, 500, 502, 503, 504} {
		requests := 0
		q := openCanned(t, func(r *http.Request) (*http.Response, error) {
			requests++
			return answering(status, "")(r)
		})
		calls := 0
		for op, do := range operations(q) {
			calls++
			if err := do(t.Context()); err == nil || requests != calls {
				t.Errorf("%s: %d after %d requests for %d calls: %v", op, status, requests, calls, err)
			}
		}
	}
}

// A redirect is no answer of the service, and following it a second request.
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
		t.Errorf("after %d requests: %v", requests.Load(), err)
	}
}

// An empty body that is not http.NoBody must be no body on the wire.
func TestGetHasNoBodyOnTheWire(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 || len(r.TransferEncoding) != 0 || r.Method != http.MethodGet {
			t.Errorf("%s with a length of %d and encoding %q", r.Method, r.ContentLength, r.TransferEncoding)
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
		t.Errorf("depth is %d, %v", p.Depth, err)
	}
}

// TestBurstKeepsItsConnections has 64 calls at once, again and again: they use
// the connections of the first time.
func TestBurstKeepsItsConnections(t *testing.T) {
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
		t.Errorf("192 calls, 64 at once, opened %d connections", n)
	}
}
