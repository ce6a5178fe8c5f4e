package emulator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// unruly is a server with faults and a queue "orders" in it.
func unruly(t *testing.T, text string, seed uint64, o Options) (*Server, *localqueue.Queue) {
	t.Helper()
	rules, err := ParseFaults(text)
	if err != nil {
		t.Fatal(err)
	}
	o.Faults = &Faults{Seed: seed, Rules: rules}
	engine := localqueue.New(nil)
	q := engine.Queue(queue.Name{Account: DevelopmentAccount, Queue: "orders"})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return New(engine, &o), q
}

// socket is a transport to the server on a socket of its own. Each request has
// a new connection: net/http repeats a GET when a used one breaks.
func socket(t *testing.T, s *Server) http.RoundTripper {
	t.Helper()
	e, err := s.Start("")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	at, err := url.Parse(e.URL())
	if err != nil {
		t.Fatal(err)
	}
	return redirected{at.Host, &http.Transport{DisableKeepAlives: true}}
}

// redirected sends requests of the in-process server to a socket.
type redirected struct {
	host string
	next http.RoundTripper
}

func (d redirected) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Host, r.Host = d.host, d.host
	return d.next.RoundTrip(r)
}

// outcome is "201", "503 ServerBusy" or "broken".
func outcome(t *testing.T, transport http.RoundTripper, r *http.Request) string {
	t.Helper()
	response, err := transport.RoundTrip(r)
	if err != nil {
		if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !strings.Contains(err.Error(), "reset by peer") {
			t.Errorf("not the error of a broken connection: %v", err)
		}
		return "broken"
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Error(err)
	}
	return strings.TrimSpace(fmt.Sprint(response.StatusCode, " ", response.Header.Get("x-ms-error-code")))
}

func put() *http.Request { return signed("POST", "/orders/messages", wrap("x")) }

// kinds are what each kind does to a put: what the client sees, how many
// messages there are then, and how many requests are counted.
var kinds = map[string]struct {
	outcome  string
	depth    int64
	requests int64
}{
	"503":       {"503 ServerBusy", 0, 1},
	"500":       {"500 InternalError", 0, 1},
	"timeout":   {"500 OperationTimedOut", 0, 1},
	"reset":     {"broken", 0, 1},
	"drop":      {"broken", 1, 1},
	"delay=1ms": {"201", 1, 1},
	"duplicate": {"201", 2, 2},
}

func TestFaultsInProcess(t *testing.T) {
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, q := unruly(t, "put:"+kind, 0, Options{})
				start := time.Now()
				checkKind(t, s, s, q, kind)
				var want time.Duration
				if kind == "delay=1ms" {
					want = time.Millisecond
				}
				if took := time.Since(start); took != want {
					t.Errorf("took %v, want %v", took, want)
				}
			})
		})
	}
}

func TestFaultsOnASocket(t *testing.T) {
	for kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			s, q := unruly(t, "put:"+kind, 0, Options{})
			checkKind(t, s, socket(t, s), q, kind)
		})
	}
}

func checkKind(t *testing.T, s *Server, transport http.RoundTripper, q *localqueue.Queue, kind string) {
	t.Helper()
	want := kinds[kind]
	if got := outcome(t, transport, put()); got != want.outcome {
		t.Errorf("got %s, want %s", got, want.outcome)
	}
	if got := outcome(t, transport, signed("GET", "/orders?comp=metadata", "")); got != "200" {
		t.Errorf("another operation: %s", got)
	}
	if got := depth(t, q); got != want.depth {
		t.Errorf("depth %d, want %d", got, want.depth)
	}
	name, _, _ := strings.Cut(kind, "=")
	counts := s.Counts()
	if counts.Operations[PutMessage] != want.requests || !reflect.DeepEqual(counts.Faults, map[FaultKind]int64{FaultKind(name): 1}) {
		t.Errorf("%+v", counts)
	}
}

// TestDuplicateUpdate holds that nothing of the first answer is in the second:
// the receipt of the first would be the good one.
func TestDuplicateUpdate(t *testing.T) {
	s, q := unruly(t, "update:duplicate", 0, Options{})
	if _, err := q.Enqueue(t.Context(), "x", nil); err != nil {
		t.Fatal(err)
	}
	got, err := q.Dequeue(t.Context(), 1, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	a := do(t, s, signed("PUT", "/orders/messages/"+string(got[0].ID)+"?visibilitytimeout=9&popreceipt="+url.QueryEscape(string(got[0].Receipt)), wrap("y")))
	if a.status != 400 || a.header.Get("x-ms-error-code") != "PopReceiptMismatch" || a.header.Get("x-ms-popreceipt") != "" || a.header.Get("x-ms-version") == "" {
		t.Errorf("%d %v %s", a.status, a.header, a.body)
	}
}

// TestFaultsTogether holds that delays add up, that they end with the context
// and the request's timeout, and that the first other kind wins.
func TestFaultsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := unruly(t, "*:delay=2s,put:503@#1,put:drop@#1+#2+#4+#5,put:delay=1s,get:500", 0, Options{})
		start := time.Now()
		var got []string
		for range 3 {
			got = append(got, outcome(t, s, put()))
		}
		if want := []string{"503 ServerBusy", "broken", "201"}; !slices.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if took := time.Since(start); took != 9*time.Second {
			t.Errorf("took %v", took)
		}
		if got := outcome(t, s, signed("POST", "/orders/messages?timeout=2", wrap("x"))); got != "500 OperationTimedOut" {
			t.Error(got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.RoundTrip(put().WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) { //nolint:bodyclose // there is none
			t.Error(err)
		}
		if got, want := s.Counts().Faults, (map[FaultKind]int64{FaultDelay: 10, FaultBusy: 1, FaultDrop: 1}); !reflect.DeepEqual(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		if took := time.Since(start); took != 12*time.Second || depth(t, q) != 2 {
			t.Errorf("took %v, depth %d", took, depth(t, q))
		}
	})
}

// TestSameSeedSameFaults does the same requests with the same seed in process
// and on a socket.
func TestSameSeedSameFaults(t *testing.T) {
	const text = "put:503@10%,*:500@1/17,get:timeout@10%,*:reset@10%,put:drop@10%,*:duplicate@10%"
	run := func(seed uint64, on func(*Server) http.RoundTripper) (out []string, counts Counts) {
		s, _ := unruly(t, text, seed, Options{})
		transport := on(s)
		for i := range 200 {
			r := put()
			if i%3 == 0 {
				r = signed("GET", "/orders/messages", "")
			}
			out = append(out, outcome(t, transport, r))
		}
		return out, s.Counts()
	}
	inside := func(s *Server) http.RoundTripper { return s }
	want, wantCounts := run(7, inside)
	if len(wantCounts.Faults) != 6 {
		t.Errorf("not every kind came up: %v", wantCounts.Faults)
	}
	if got, counts := run(7, inside); !slices.Equal(got, want) || !reflect.DeepEqual(counts, wantCounts) {
		t.Errorf("again in process: %v, want %v", counts, wantCounts)
	}
	if got, counts := run(7, func(s *Server) http.RoundTripper { return socket(t, s) }); !slices.Equal(got, want) || !reflect.DeepEqual(counts, wantCounts) {
		t.Errorf("on a socket:\n%v\n%v", counts, wantCounts)
	}
	if got, _ := run(8, inside); slices.Equal(got, want) {
		t.Error("another seed has the same faults")
	}
}

// TestRate holds that the share is what was asked for. It is not by chance: the
// seeds are fixed. Four standard deviations of 20,000 draws at 5 % are 123.
func TestRate(t *testing.T) {
	rule := Fault{Kind: FaultBusy, Rate: 0.05}
	for seed := range uint64(20) {
		var n int
		for i := range uint64(20_000) {
			if rule.hits(seed, seed%3, i+1) {
				n++
			}
		}
		if n < 1000-123 || n > 1000+123 {
			t.Errorf("seed %d: %d of 20,000", seed, n)
		}
	}
}

// TestBrokenConnectionsAreNoPanics holds that a server of one's own logs nothing
// of faults.
func TestBrokenConnectionsAreNoPanics(t *testing.T) {
	s, _ := unruly(t, "put:reset@1/2,put:drop@#1", 0, Options{})
	var logged bytes.Buffer
	server := httptest.NewUnstartedServer(s)
	server.Config.ErrorLog = log.New(&logged, "", 0)
	server.Start()
	transport := redirected{strings.TrimPrefix(server.URL, "http://"), server.Client().Transport}
	for i, want := range []string{"broken", "broken", "201"} {
		if got := outcome(t, transport, put()); got != want {
			t.Errorf("put %d: %s, want %s", i, got, want)
		}
	}
	server.Close() // waits for what could log
	if logged.Len() > 0 {
		t.Errorf("logged: %s", logged.String())
	}
}

// TestLog holds what is logged, and that nothing secret is.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged bytes.Buffer
		o := Options{Log: slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))}
		s, q := unruly(t, "put:delay=1s@#2,put:503@#2,delete:drop@#1", 0, o)
		outcome(t, s, signed("POST", "/orders/messages", wrap("sesame")))
		outcome(t, s, signed("POST", "/orders/messages", wrap("sesame")))
		got, err := q.Dequeue(t.Context(), 1, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		receipt := url.QueryEscape(string(got[0].Receipt))
		remove := signed("DELETE", "/orders/messages/"+string(got[0].ID)+"?popreceipt="+receipt, "")
		outcome(t, s, remove)
		outcome(t, s, signed("DELETE", "/orders/messages/"+string(got[0].ID)+"?popreceipt="+receipt, ""))
		outcome(t, s, signed("GET", "/Not%20A%0AName/messages?sig=sesame", ""))
		want := strings.Join([]string{
			`level=INFO msg=request operation=PutMessage queue=orders status=201 duration=0s`,
			`level=WARN msg=request operation=PutMessage queue=orders status=503 code=ServerBusy duration=1s fault=delay=1s+503`,
			`level=WARN msg=request operation=DeleteMessage queue=orders duration=0s fault=drop`,
			`level=INFO msg=request operation=DeleteMessage queue=orders status=404 code=MessageNotFound duration=0s`,
			`level=INFO msg=request operation=GetMessages status=400 code=InvalidResourceName duration=0s`,
		}, "\n") + "\n"
		if strings.ReplaceAll(logged.String(), `"`, "") != want {
			t.Errorf("logged:\n%swant:\n%s", logged.String(), want)
		}
		_, signature, _ := strings.Cut(remove.Header.Get("Authorization"), ":")
		for _, secret := range []string{"sesame", receipt, string(got[0].Receipt), signature, DevelopmentKey, "popreceipt", "?"} {
			if strings.Contains(logged.String(), secret) {
				t.Errorf("%q is in the log:\n%s", secret, logged.String())
			}
		}
	})
}
