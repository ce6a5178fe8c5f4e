package emulator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// faulty is a server with these faults over an engine with an empty queue
// "orders".
func faulty(t *testing.T, seed uint64, rules string) (*Server, *localqueue.Queue) {
	t.Helper()
	parsed, err := ParseFaults(rules)
	if err != nil {
		t.Fatal(err)
	}
	return withOptions(t, &Options{Faults: &Faults{Seed: seed, Rules: parsed}})
}

// withOptions is a server over an engine with an empty queue "orders".
func withOptions(t *testing.T, o *Options) (*Server, *localqueue.Queue) {
	t.Helper()
	engine := localqueue.New(&localqueue.Options{Seed: 1})
	q := engine.Queue(queue.Name{Account: DevelopmentAccount, Queue: "orders"})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return New(engine, o), q
}

// outcome is what a client makes of a request: a status and a code, or an error.
type outcome struct {
	status int
	code   string
	err    error
	header http.Header
}

func attempt(t *testing.T, transport http.RoundTripper, r *http.Request) outcome {
	t.Helper()
	response, err := transport.RoundTrip(r)
	if err != nil {
		return outcome{err: err}
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		t.Fatal(err)
	}
	return outcome{response.StatusCode, response.Header.Get("x-ms-error-code"), nil, response.Header}
}

// way is how requests come to a server.
type way struct {
	name string
	open func(*testing.T, *Server) (host string, transport http.RoundTripper)
}

// waysIn are in process, over a socket and over TLS. Connections serve one
// request: net/http repeats some on those that it has used.
var waysIn = []way{
	{"in process", func(_ *testing.T, s *Server) (string, http.RoundTripper) { return inProcess, s }},
	{"over a socket", func(t *testing.T, s *Server) (string, http.RoundTripper) {
		e, err := s.Start("")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e.Addr().String(), &http.Transport{DisableKeepAlives: true}
	}},
	{"over TLS", func(t *testing.T, s *Server) (string, http.RoundTripper) {
		e, transport := overTLS(t, s)
		transport.DisableKeepAlives = true
		return e.Addr().String(), secured{transport}
	}},
}

// secured sends over TLS what is meant for a plain connection.
type secured struct{ next http.RoundTripper }

func (s secured) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme = "https"
	return s.next.RoundTrip(r)
}

func at(host string, r *http.Request) *http.Request {
	r.URL.Host, r.Host = host, ""
	return r
}

// effects are what each kind does to a put.
var effects = []struct {
	kind     string
	status   int
	code     string
	err      error
	depth    int64 // how many messages there are then
	requests int64
}{
	{"503", 503, "ServerBusy", nil, 0, 1},
	{"500", 500, "InternalError", nil, 0, 1},
	{"408", 408, "OperationTimedOut", nil, 0, 1},
	{"reset", 0, "", syscall.ECONNRESET, 0, 1},
	{"drop", 0, "", io.EOF, 1, 1},
	{"delay=1ms", 201, "", nil, 1, 1},
	{"duplicate", 201, "", nil, 2, 2},
}

func TestFaultsOnEveryWay(t *testing.T) {
	for _, w := range waysIn {
		for _, c := range effects {
			t.Run(w.name+"/"+c.kind, func(t *testing.T) {
				s, q := faulty(t, 0, "put:"+c.kind+"@#2")
				host, transport := w.open(t, s)
				put := func() outcome {
					return attempt(t, transport, at(host, signed("POST", "/orders/messages", wrap("x"))))
				}
				if got := put(); got.status != 201 {
					t.Fatalf("the first: %+v", got)
				}
				got := put()
				if got.status != c.status || got.code != c.code || (got.err == nil) != (c.err == nil) || !errors.Is(got.err, c.err) {
					t.Errorf("got %+v", got)
				}
				if got := depth(t, q) - 1; got != c.depth {
					t.Errorf("%d messages, want %d", got, c.depth)
				}
				if got := put(); got.status != 201 {
					t.Errorf("the third: %+v", got)
				}
				if got := attempt(t, transport, at(host, signed("GET", "/orders?comp=metadata", ""))); got.status != 200 {
					t.Errorf("another operation: %+v", got)
				}
				counts := s.Counts()
				kind, _, _ := strings.Cut(c.kind, "=")
				if counts.Operations[PutMessage] != 2+c.requests || counts.Faults[FaultKind(kind)] != 1 || counts.Tallies[PutMessage].Faults != 1 || len(counts.Faults) != 1 {
					t.Errorf("counted\n%v", counts)
				}
				if unanswered := counts.Operations[PutMessage] - sum(counts.Tallies[PutMessage].Answers); (unanswered == 1) != (c.err != nil) {
					t.Errorf("%d without an answer", unanswered)
				}
			})
		}
	}
}

func sum(numbers [6]int64) (all int64) {
	for _, n := range numbers {
		all += n
	}
	return all
}

// TestFaultsAreDocumented holds the table of docs/protocol.md against the effects
// that TestFaultsOnEveryWay checks.
func TestFaultsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(protocolDocument)
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "| fault | the client gets | done |\n|---|---|---|\n")
	if !ok {
		t.Fatal("there is no such table")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	lines := strings.Split(table, "\n")
	if len(lines) != len(effects) || len(effects) != len(faultKinds) {
		t.Fatalf("%d rows, %d effects, %d kinds", len(lines), len(effects), len(faultKinds))
	}
	for i, c := range effects {
		gets := fmt.Sprint(c.status, " ", c.code)
		switch c.kind {
		case "reset":
			gets = "a connection that is reset"
		case "drop":
			gets = "a connection that is closed without an answer"
		case "delay=1ms":
			gets = "the answer, later"
		case "duplicate":
			gets = "the answer to the second copy"
		}
		want := "| `" + c.kind + "` | " + gets + " | " + []string{"no", "once", "twice"}[c.depth] + " |"
		if lines[i] != want {
			t.Errorf("the page has %s, want %s", lines[i], want)
		}
		if name, _, _ := strings.Cut(c.kind, "="); FaultKind(name) != faultKinds[i] {
			t.Errorf("%s is not where %s is", c.kind, faultKinds[i])
		}
	}
}

// TestDelay: the work comes after the delay, all of which a client can leave.
func TestDelay(t *testing.T) {
	for name, c := range map[string]struct {
		rules  string
		leave  time.Duration // 0 is never
		status int
		took   time.Duration
		depth  int64
	}{
		"stays":                       {"put:delay=3s", 0, 201, 3 * time.Second, 1},
		"leaves":                      {"put:delay=3s", 2 * time.Second, 0, 2 * time.Second, 0},
		"two add up":                  {"put:delay=3s,*:delay=4s", 0, 201, 7 * time.Second, 1},
		"with a duplicate":            {"put:duplicate,put:delay=3s", 0, 201, 3 * time.Second, 2},
		"none of the work":            {"put:delay=3s,put:503", 0, 503, 0, 0},
		"longer than a request may":   {"put:delay=31s", 0, 500, 30 * time.Second, 0},
		"as long as a request may be": {"put:delay=30s", 0, 201, 30 * time.Second, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, q := faulty(t, 0, c.rules)
				ctx, cancel := context.WithTimeout(t.Context(), cmp.Or(c.leave, time.Hour))
				defer cancel()
				start := time.Now()
				got := attempt(t, s, signed("POST", "/orders/messages", wrap("x")).WithContext(ctx))
				if got.status != c.status || time.Since(start) != c.took || depth(t, q) != c.depth {
					t.Errorf("%+v after %v, depth %d", got, time.Since(start), depth(t, q))
				}
				if delayed := s.Counts().Faults[FaultDelay] > 0; delayed != (c.took > 0) {
					t.Errorf("counted\n%v", s.Counts())
				}
				if c.status == 0 && !errors.Is(got.err, context.DeadlineExceeded) {
					t.Error(got.err)
				}
			})
		})
	}
}

// TestDelayOfAPreflight: it needs no version and no signature, but it waits.
func TestDelayOfAPreflight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := faulty(t, 0, "*:delay=5s")
		start := time.Now()
		if got := attempt(t, s, signed("OPTIONS", "/orders", "")); got.status != 400 || time.Since(start) != 5*time.Second {
			t.Errorf("%+v after %v", got, time.Since(start))
		}
		if got := attempt(t, s, signed("GET", "/orders?comp=nothing", "")); got.status != 400 || s.Counts().Tallies[Unknown].Faults != 0 {
			t.Errorf("a request that is no operation: %+v", got)
		}
	})
}

// TestDuplicateAnswers: the client hears the answer to the second copy, and
// nothing of the first.
func TestDuplicateAnswers(t *testing.T) {
	s, q := faulty(t, 0, "update:duplicate,delete:duplicate,get:duplicate")
	for range 3 {
		if _, err := q.Enqueue(t.Context(), "x", nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := attempt(t, s, signed("GET", "/orders/messages", "")); got.status != 200 {
		t.Errorf("get: %+v", got)
	}
	rest, err := q.Dequeue(t.Context(), 32, time.Minute)
	if err != nil || len(rest) != 1 {
		t.Fatalf("%d left after a get that was done twice, %v", len(rest), err)
	}
	address := func(l queue.Lease) string {
		return "/orders/messages/" + string(l.ID) + "?visibilitytimeout=1&popreceipt=" + url.QueryEscape(string(l.Receipt))
	}
	got := attempt(t, s, signed("PUT", address(rest[0].Lease), ""))
	if got.code != "PopReceiptMismatch" || got.header.Get("x-ms-popreceipt") != "" || got.header.Get("x-ms-time-next-visible") != "" {
		t.Errorf("update: %+v", got)
	}
	m, err := q.Enqueue(t.Context(), "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := attempt(t, s, signed("DELETE", address(m.Lease), "")); got.code != "MessageNotFound" {
		t.Errorf("delete: %+v", got)
	}
	counts := s.Counts()
	if counts.Messages != 2 || counts.Statuses[2] != 4 || counts.Statuses[4] != 2 || counts.Requests() != 6 {
		t.Errorf("counted\n%v", counts)
	}
}

// TestFirstFaultCounts: of several that hit a request, but delays.
func TestFirstFaultCounts(t *testing.T) {
	s, _ := faulty(t, 0, "put:503@1/2 *:500@1/3 put:408@#6,7")
	var codes []string
	for range 7 {
		codes = append(codes, attempt(t, s, signed("POST", "/orders/messages", wrap("x"))).code)
	}
	if got := strings.Join(codes, ","); got != ",ServerBusy,InternalError,ServerBusy,,ServerBusy,OperationTimedOut" {
		t.Error(got)
	}
}

// TestFaultsComeBeforeAuthorization: whoever sends the requests, they are counted
// and hit, so that numbers are those of the log.
func TestFaultsComeBeforeAuthorization(t *testing.T) {
	s, _ := faulty(t, 0, "put:503@#2")
	for _, want := range []int{403, 503, 403} {
		r := signed("POST", "/orders/messages", wrap("x"))
		r.Header.Set("Authorization", "SharedKey devstoreaccount1:AAAA")
		if got := attempt(t, s, r); got.status != want {
			t.Errorf("%+v, want %d", got, want)
		}
	}
}

// injections sends puts and gets in turn and returns what came of each.
func injections(t *testing.T, w way, seed uint64, n int) []int {
	t.Helper()
	s, _ := faulty(t, seed, "put:503@30%,*:reset@10%,get:500@30%")
	host, transport := w.open(t, s)
	var all []int
	for i := range n {
		r := signed("POST", "/orders/messages", wrap("x"))
		if i%3 == 0 {
			r = signed("GET", "/orders/messages?numofmessages=32", "")
		}
		all = append(all, attempt(t, transport, at(host, r)).status)
	}
	return all
}

// TestSeed: the same sequence of requests has the same faults, on every way.
func TestSeed(t *testing.T) {
	const n = 60
	want := injections(t, waysIn[0], 7, n)
	for _, status := range []int{201, 200, 503, 500, 0} {
		if !slices.Contains(want, status) {
			t.Errorf("%d never came up: %v", status, want)
		}
	}
	for _, w := range waysIn {
		if got := injections(t, w, 7, n); !slices.Equal(got, want) {
			t.Errorf("%s:\n%v, want\n%v", w.name, got, want)
		}
	}
	if got := injections(t, waysIn[0], 8, n); slices.Equal(got, want) {
		t.Error("another seed does the same")
	}
}

// TestRates: the dice are fair, one throw after the other and for one seed after
// the other.
func TestRates(t *testing.T) {
	const n = 20_000
	for _, rate := range []float64{0, 0.01, 0.5, 0.99, 1} {
		for seed := range uint64(3) {
			rule := &faultRule{Fault: Fault{Kind: FaultBusy, Rate: rate}}
			throws, seeds, rules := 0, 0, 0
			for i := range n {
				throws += count(rule.hits(seed, 0, int64(i)+1))
				seeds += count(rule.hits(uint64(i), int(seed), 1))
				rules += count(rule.hits(seed, i, 1))
			}
			for _, hits := range []int{throws, seeds, rules} {
				// Five standard deviations.
				if off := float64(hits) - n*rate; off*off > 25*n*rate*(1-rate) {
					t.Errorf("%d of %d at %v", hits, n, rate)
				}
			}
		}
	}
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// TestInvalidFaultsAreRefused: rules that were not parsed are checked before serving.
func TestInvalidFaultsAreRefused(t *testing.T) {
	for want, o := range map[string]*Options{
		`rule 1: there is no fault "": write one of 503`:               {Faults: &Faults{Rules: []Fault{{}}}},
		`rule 2: there is no operation "Unknown": write put`:           {Faults: &Faults{Rules: []Fault{{Kind: FaultBusy}, {Kind: FaultBusy, Operation: Unknown}}}},
		`a rate of 1.5: it is 0 to 1`:                                  {Faults: &Faults{Rules: []Fault{{Kind: FaultBusy, Rate: 1.5}}}},
		`more than one of Rate, Every and At: make it a rule each`:     {Faults: &Faults{Rules: []Fault{{Kind: FaultBusy, Rate: 1, Every: 1}}}},
		`every -1: it is 1 or more`:                                    {Faults: &Faults{Rules: []Fault{{Kind: FaultBusy, Every: -1}}}},
		`request #0: the first is #1`:                                  {Faults: &Faults{Rules: []Fault{{Kind: FaultBusy, At: []int64{0}}}}},
		`a delay of 0s: it takes more than 0`:                          {Faults: &Faults{Rules: []Fault{{Kind: FaultDelay}}}},
		`503 takes no time: leave out the 1s`:                          {Faults: &Faults{Rules: []Fault{{Kind: FaultBusy, Delay: time.Second}}}},
		`Options.Limits.Messages is -1: it is 0 to 1000000000`:         {Limits: Limits{Messages: -1}},
		`Options.Limits.Requests is 1000000001: it is 0 to 1000000000`: {Limits: Limits{Requests: 1_000_000_001}},
		`the delays of 106752 rules add up to more than there is time`: {Faults: &Faults{Rules: slices.Repeat([]Fault{{Kind: FaultDelay, Delay: maxDelay}}, 106752)}},
	} {
		s := New(nil, o)
		if e, err := s.Start(""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Start: %v, %v; want %s", e, err, want)
		}
		if response, err := s.RoundTrip(signed("PUT", "/orders", "")); err == nil || !strings.Contains(err.Error(), want) {
			if err == nil {
				response.Body.Close()
			}
			t.Errorf("RoundTrip: %v; want %s", err, want)
		}
		w := &response{header: http.Header{}}
		s.ServeHTTP(w, signed("PUT", "/orders", ""))
		if w.status != 500 || !strings.Contains(w.body.String(), strings.Split(want, `"`)[0]) {
			t.Errorf("ServeHTTP: %d %s", w.status, &w.body)
		}
	}
}
