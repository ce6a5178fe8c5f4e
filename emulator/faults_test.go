package emulator

import (
	"cmp"
	"context"
	"errors"
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

// faulty returns a server with these faults over an engine with an empty queue "orders".
func faulty(t *testing.T, seed uint64, rules string) (*Server, queue.Manager) {
	t.Helper()
	parsed, err := ParseFaults(rules)
	if err != nil {
		t.Fatal(err)
	}
	return withOptions(t, &Options{Faults: &Faults{Seed: seed, Rules: parsed}})
}

// withOptions returns a server over an engine with an empty queue "orders".
func withOptions(t *testing.T, o *Options) (*Server, queue.Manager) {
	t.Helper()
	engine := must(localqueue.New(&localqueue.Options{Seed: 1}))
	q := engine.Queue(queue.Name{Account: DevelopmentAccount, Queue: "orders"})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return must(New(engine, o)), q
}

// outcome is what a client gets: a status and a code, or an error.
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

// way is a way in which requests reach a server.
type way struct {
	name string
	open func(*testing.T, *Server) (host string, transport http.RoundTripper)
}

// waysIn are in process, over a socket and over TLS. Each connection serves one request, because
// net/http repeats some requests on reused connections.
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

// secured changes requests to https.
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

// effects are the effects of each kind of fault on a put.
var effects = []struct {
	kind     string
	status   int
	code     string
	err      error
	depth    int64 // messages in the queue afterwards
	requests int64
	document string // what the client gets, in docs/protocol.md
}{
	{"503", 503, "ServerBusy", nil, 0, 1, "503 ServerBusy"},
	{"500", 500, "InternalError", nil, 0, 1, "500 InternalError"},
	{"408", 408, "OperationTimedOut", nil, 0, 1, "408 OperationTimedOut"},
	{"403", 403, "AuthorizationFailure", nil, 0, 1, "403 AuthorizationFailure"},
	{"reset", 0, "", syscall.ECONNRESET, 0, 1, "a connection that is reset"},
	{"drop", 0, "", io.EOF, 1, 1, "a connection that is closed without a response"},
	{"delay=1ms", 201, "", nil, 1, 1, "the response, later"},
	{"duplicate", 201, "", nil, 2, 2, "the response to the second copy"},
}

func TestFaultsOnEveryTransport(t *testing.T) {
	for _, w := range waysIn {
		for _, c := range effects {
			t.Run(w.name+"/"+c.kind, func(t *testing.T) {
				s, q := faulty(t, 0, "put:"+c.kind+"@#2")
				host, transport := w.open(t, s)
				put := func() outcome {
					return attempt(t, transport, at(host, signed("POST", "/orders/messages", wrap("x"))))
				}
				if got := put(); got.status != 201 {
					t.Fatalf("first put: got %+v, want status 201", got)
				}
				got := put()
				if got.status != c.status || got.code != c.code || (got.err == nil) != (c.err == nil) || !errors.Is(got.err, c.err) {
					t.Errorf("second put: got %+v, want status %d, code %q, error %v", got, c.status, c.code, c.err)
				}
				if got := depth(t, q) - 1; got != c.depth {
					t.Errorf("depth after the second put: got %d more messages, want %d", got, c.depth)
				}
				if got := put(); got.status != 201 {
					t.Errorf("third put: got %+v, want status 201", got)
				}
				if got := attempt(t, transport, at(host, signed("GET", "/orders?comp=metadata", ""))); got.status != 200 {
					t.Errorf("another operation: got %+v, want status 200", got)
				}
				counts := s.Counts()
				kind, _, _ := strings.Cut(c.kind, "=")
				if counts.Operations[PutMessage] != 2+c.requests || counts.Faults[FaultKind(kind)] != 1 || counts.Tallies[PutMessage].Faults != 1 || len(counts.Faults) != 1 {
					t.Errorf("counts: got\n%v\nwant %d puts and one fault", counts, 2+c.requests)
				}
				if unanswered := counts.Operations[PutMessage] - sum(counts.Tallies[PutMessage].Responses); (unanswered == 1) != (c.err != nil) {
					t.Errorf("puts without a response: got %d, want 1 only for an error", unanswered)
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

// TestFaultsAreDocumented compares the table of docs/protocol.md with the effects that
// TestFaultsOnEveryTransport checks.
func TestFaultsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(protocolDocument)
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), "| fault | the client gets | done |\n|---|---|---|\n")
	if !ok {
		t.Fatalf("%s has no table of faults", protocolDocument)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	lines := strings.Split(table, "\n")
	if len(lines) != len(effects) || len(effects) != len(faultKinds) {
		t.Fatalf("got %d rows, %d effects and %d kinds of faults, want the same number", len(lines), len(effects), len(faultKinds))
	}
	for i, c := range effects {
		want := "| `" + c.kind + "` | " + c.document + " | " + []string{"no", "once", "twice"}[c.depth] + " |"
		if lines[i] != want {
			t.Errorf("row %d: got %s, want %s", i+1, lines[i], want)
		}
		if name, _, _ := strings.Cut(c.kind, "="); FaultKind(name) != faultKinds[i] {
			t.Errorf("fault kind %d: got %s, want %s", i+1, c.kind, faultKinds[i])
		}
	}
}

// TestDelayBeforeTheWork: a request is executed after its delay, unless its client has left by then.
func TestDelayBeforeTheWork(t *testing.T) {
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
					t.Errorf("got %+v after %v and depth %d; want status %d after %v and depth %d", got, time.Since(start), depth(t, q), c.status, c.took, c.depth)
				}
				if delayed := s.Counts().Faults[FaultDelay] > 0; delayed != (c.took > 0) {
					t.Errorf("delay counted: got %v, want %v\n%v", delayed, c.took > 0, s.Counts())
				}
				if c.status == 0 && !errors.Is(got.err, context.DeadlineExceeded) {
					t.Errorf("error: got %v, want DeadlineExceeded", got.err)
				}
			})
		})
	}
}

// TestPreflightIsDelayed: delays apply to preflights too, which need no version and no signature.
func TestPreflightIsDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := faulty(t, 0, "*:delay=5s")
		start := time.Now()
		if got := attempt(t, s, signed("OPTIONS", "/orders", "")); got.status != 400 || time.Since(start) != 5*time.Second {
			t.Errorf("preflight: got %+v after %v, want status 400 after 5s", got, time.Since(start))
		}
		if got := attempt(t, s, signed("GET", "/orders?comp=nothing", "")); got.status != 400 || s.Counts().Tallies[Unknown].Faults != 0 {
			t.Errorf("request that is no operation: got %+v, want status 400 without a fault", got)
		}
	})
}

// TestDuplicateReturnsTheSecondResponse: the client gets the response to the second copy, without
// anything of the first.
func TestDuplicateReturnsTheSecondResponse(t *testing.T) {
	s, q := faulty(t, 0, "update:duplicate,delete:duplicate,get:duplicate")
	for range 3 {
		if _, err := q.Enqueue(t.Context(), "x", nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := attempt(t, s, signed("GET", "/orders/messages", "")); got.status != 200 {
		t.Errorf("get: got %+v, want status 200", got)
	}
	rest, err := q.Dequeue(t.Context(), 32, time.Minute)
	if err != nil || len(rest) != 1 {
		t.Fatalf("messages left after a duplicate get: got %d, %v; want 1", len(rest), err)
	}
	address := func(l queue.Lease) string {
		return "/orders/messages/" + string(l.ID) + "?visibilitytimeout=1&popreceipt=" + url.QueryEscape(string(l.Receipt))
	}
	got := attempt(t, s, signed("PUT", address(rest[0].Lease), ""))
	if got.code != "PopReceiptMismatch" || got.header.Get("x-ms-popreceipt") != "" || got.header.Get("x-ms-time-next-visible") != "" {
		t.Errorf("update: got %+v, want PopReceiptMismatch without a receipt", got)
	}
	m, err := q.Enqueue(t.Context(), "x", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := attempt(t, s, signed("DELETE", address(m.Lease), "")); got.code != "MessageNotFound" {
		t.Errorf("delete: got %+v, want MessageNotFound", got)
	}
	counts := s.Counts()
	if counts.Messages != 2 || counts.Statuses[2] != 4 || counts.Statuses[4] != 2 || counts.Requests() != 6 {
		t.Errorf("counts: got\n%v\nwant 6 requests, 4 of them 2xx and 2 of them 4xx, and 2 messages", counts)
	}
}

// TestFirstMatchingFaultWins: of several faults that hit a request the first counts, delays apart.
func TestFirstMatchingFaultWins(t *testing.T) {
	s, _ := faulty(t, 0, "put:503@1/2 *:500@1/3 put:408@#6,7")
	var codes []string
	for range 7 {
		codes = append(codes, attempt(t, s, signed("POST", "/orders/messages", wrap("x"))).code)
	}
	if got := strings.Join(codes, ","); got != ",ServerBusy,InternalError,ServerBusy,,ServerBusy,OperationTimedOut" {
		t.Errorf("codes: got %s, want ,ServerBusy,InternalError,ServerBusy,,ServerBusy,OperationTimedOut", got)
	}
}

// TestFaultsComeBeforeAuthorization: unauthorized requests count for the rules too, so that the
// numbers are those of the log.
func TestFaultsComeBeforeAuthorization(t *testing.T) {
	s, _ := faulty(t, 0, "put:503@#2")
	for _, want := range []int{403, 503, 403} {
		r := signed("POST", "/orders/messages", wrap("x"))
		r.Header.Set("Authorization", "SharedKey devstoreaccount1:AAAA")
		if got := attempt(t, s, r); got.status != want {
			t.Errorf("got %+v, want status %d", got, want)
		}
	}
}

// injections sends puts and gets and returns the status of each.
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

// TestSeedRepeatsFaults: the same sequence of requests has the same faults on every transport.
func TestSeedRepeatsFaults(t *testing.T) {
	const n = 60
	want := injections(t, waysIn[0], 7, n)
	for _, status := range []int{201, 200, 503, 500, 0} {
		if !slices.Contains(want, status) {
			t.Errorf("statuses: got %v, want %d among them", want, status)
		}
	}
	for _, w := range waysIn {
		if got := injections(t, w, 7, n); !slices.Equal(got, want) {
			t.Errorf("%s: got\n%v, want\n%v", w.name, got, want)
		}
	}
	if got := injections(t, waysIn[0], 8, n); slices.Equal(got, want) {
		t.Error("another seed has the same faults")
	}
}

// TestFaultRatesAreMet: the share of hits is the rate, over the requests of one rule, over seeds
// and over rules.
func TestFaultRatesAreMet(t *testing.T) {
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
					t.Errorf("rate %v: got %d hits of %d, want about %.0f", rate, hits, n, n*rate)
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

// TestInvalidFaultsAreRefused: New checks rules that ParseFaults did not make, and quotas.
func TestInvalidFaultsAreRefused(t *testing.T) {
	for want, o := range map[string]*Options{
		`rule 1: unknown fault "": write one of 503`:                        {Faults: &Faults{Rules: []Fault{{}}}},
		`rule 2: unknown operation "Unknown": write put`:                    {Faults: &Faults{Rules: []Fault{{Kind: FaultBusy}, {Kind: FaultBusy, Operation: Unknown}}}},
		`a rate of 1.5 is out of range: it must be 0 to 1`:                  {Faults: &Faults{Rules: []Fault{{Kind: FaultBusy, Rate: 1.5}}}},
		`more than one of Rate, Every and At: make one rule for each`:       {Faults: &Faults{Rules: []Fault{{Kind: FaultBusy, Rate: 1, Every: 1}}}},
		`every -1 is out of range: it must be 1 or more`:                    {Faults: &Faults{Rules: []Fault{{Kind: FaultBusy, Every: -1}}}},
		`request #0: the first is #1`:                                       {Faults: &Faults{Rules: []Fault{{Kind: FaultBusy, At: []int64{0}}}}},
		`a delay of 0s is out of range: it must be more than 0`:             {Faults: &Faults{Rules: []Fault{{Kind: FaultDelay}}}},
		`503 has no duration: remove the 1s`:                                {Faults: &Faults{Rules: []Fault{{Kind: FaultBusy, Delay: time.Second}}}},
		`Options.Quotas.Messages is -1: it must be 0 to 1000000000`:         {Quotas: Quotas{Messages: -1}},
		`Options.Quotas.Requests is 1000000001: it must be 0 to 1000000000`: {Quotas: Quotas{Requests: 1_000_000_001}},
		`the delays of 106752 rules add up to more than a duration can be`:  {Faults: &Faults{Rules: slices.Repeat([]Fault{{Kind: FaultDelay, Delay: maxDelay}}, 106752)}},
	} {
		if s, err := New(nil, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: got %v, %v; want an error with %s", s, err, want)
		}
	}
}
