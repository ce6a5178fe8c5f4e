package emulator

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// slow returns a server with a queue "orders" that takes two seconds for each request.
func slow(t *testing.T) (*Server, queue.Manager) {
	t.Helper()
	engine := must(localqueue.New(nil))
	q := engine.Queue(queue.Name{Account: DevelopmentAccount, Queue: "orders"})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return must(New(engine, &Options{Delay: 2 * time.Second})), q
}

func depth(t *testing.T, q queue.Manager) int64 {
	t.Helper()
	p, err := q.Properties(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p.Depth
}

func TestCancelInProcess(t *testing.T) {
	cause := errors.New("no longer wanted")
	for name, c := range map[string]struct {
		after time.Duration
		depth int64 // whether the put took effect
	}{
		"before it was sent":  {0, 0},
		"in the first half":   {999 * time.Millisecond, 0},
		"in the second half":  {1001 * time.Millisecond, 1},
		"just before the end": {1999 * time.Millisecond, 1},
		"after the response":  {2001 * time.Millisecond, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, q := slow(t)
				ctx, cancel := context.WithCancelCause(t.Context())
				if c.after == 0 {
					cancel(cause)
				} else {
					stop := time.AfterFunc(c.after, func() { cancel(cause) })
					defer stop.Stop()
				}
				body := &closing{Reader: strings.NewReader(wrap("x"))}
				r := signed("POST", "/orders/messages", wrap("x")).WithContext(ctx)
				r.Body = body
				start := time.Now()
				response, err := s.RoundTrip(r)
				if took := time.Since(start); took != min(c.after, 2*time.Second) {
					t.Errorf("duration: got %v, want %v", took, min(c.after, 2*time.Second))
				}
				if response != nil {
					defer response.Body.Close()
				}
				if c.after < 2*time.Second {
					if response != nil || !errors.Is(err, cause) {
						t.Errorf("RoundTrip: got %v, %v; want the cause of the context", response, err)
					}
				} else if err != nil || response.StatusCode != http.StatusCreated {
					t.Errorf("RoundTrip: got %v, %v; want status 201", response, err)
				}
				if got := depth(t, q); got != c.depth {
					t.Errorf("depth: got %d, want %d", got, c.depth)
				}
				if !body.closed {
					t.Error("the body was not closed")
				}
			})
		})
	}
}

type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestServerTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := slow(t)
		start := time.Now()
		a := do(t, s, signed("POST", "/orders/messages?timeout=1", wrap("x")))
		if a.status != 500 || a.header.Get("x-ms-error-code") != "OperationTimedOut" || time.Since(start) != time.Second || depth(t, q) != 0 {
			t.Errorf("timeout=1: got status %d, %s after %v, depth %d; want 500 OperationTimedOut after 1s, depth 0", a.status, a.body, time.Since(start), depth(t, q))
		}
		if a := do(t, s, signed("POST", "/orders/messages?timeout=2", wrap("x"))); a.status != 201 {
			t.Errorf("timeout=2: got status %d, want 201: %s", a.status, a.body)
		}
	})
}

func TestClockSkew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := must(localqueue.New(nil))
		s := must(New(engine, nil))
		for skew, status := range map[time.Duration]int{
			0:                                 200,
			15 * time.Minute:                  200,
			15*time.Minute + 1*time.Second:    403,
			-15 * time.Minute:                 200,
			-15*time.Minute - 1*time.Second:   403,
			100 * 365 * 24 * 60 * time.Minute: 403,
		} {
			r := signed("GET", "?comp=list", "")
			date := time.Now().Add(skew).UTC().Format(http.TimeFormat)
			r.Header.Set("x-ms-date", date)
			r.Header.Set("Authorization", authorization(r, ""))
			if a := do(t, s, r); a.status != status || status == 403 && a.header.Get("x-ms-error-code") != "AuthenticationFailed" {
				t.Errorf("skew %v: got status %d, want %d: %s", skew, a.status, status, a.body)
			}
		}
	})
}

// TestRoundTripDoesNotChangeTheRequest: the contract of http.RoundTripper.
func TestRoundTripDoesNotChangeTheRequest(t *testing.T) {
	s, r := must(New(nil, nil)), signed("PUT", "/orders", "")
	r.Header["x-ms-meta-lower"] = []string{"1"}
	before, url := r.Header.Clone(), r.URL.String()
	response, err := s.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.Request != r || r.URL.String() != url || len(r.Header) != len(before) {
		t.Errorf("request afterwards: got %v %v, want it unchanged", r.URL, r.Header)
	}
}

// TestInProcessHeadersMatchTheWire: in process a server sees the same headers as over a socket,
// without spaces around values, and none that cannot be sent.
func TestInProcessHeadersMatchTheWire(t *testing.T) {
	s := must(New(nil, nil))
	r, err := http.NewRequest(http.MethodPut, "http://"+inProcess+"/"+DevelopmentAccount+"/orders", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("x-ms-meta-a", "1")
	sign(r)
	r.Header.Set("x-ms-meta-a", " 1\t")
	if a := do(t, s, r); a.status != http.StatusCreated {
		t.Errorf("got status %d, want 201: %s", a.status, a.body)
	}
	for name, value := range map[string]string{"x-ms-meta-a": "1\nx-ms-meta-b:2", "x-ms-meta-b": "\r", "x-ms-meta-c\n": "1"} {
		r := signed("PUT", "/orders", "")
		r.Header[name] = []string{value}
		if response, err := s.RoundTrip(r); err == nil {
			response.Body.Close()
			t.Errorf("header %q with the value %q: got a response, want an error", name, value)
		}
	}
}

func TestAdditionalAccounts(t *testing.T) {
	engine := must(localqueue.New(nil))
	s := must(New(engine, &Options{Accounts: map[string][]byte{"second": []byte("key")}}))
	q, err := queueClient("http://"+inProcess+"/second/orders", "second", "a2V5", s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Queue(queue.Name{Account: "second", Queue: "orders"}).Properties(t.Context()); err != nil {
		t.Error(err)
	}
	if q, err = queueClient("http://"+inProcess+"/second/orders", "second", DevelopmentKey, s); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Create(t.Context(), nil); err == nil || strings.Contains(err.Error(), DevelopmentKey) {
		t.Errorf("create with another account's key: got %v, want an error without the key", err)
	}
}
