package emulator

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/pipelistener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
	"github.com/millrace/millrace/queue/localqueue"
)

// setFaults replaces the faults of a server.
func setFaults(t *testing.T, s *Server, rules string) {
	t.Helper()
	parsed, err := ParseFaults(rules)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetFaults(&Faults{Rules: parsed}); err != nil {
		t.Fatal(err)
	}
}

// aPut returns a signed put into the queue "orders".
func aPut() *http.Request { return signed("POST", "/orders/messages", wrap("x")) }

// oneConnection sends requests over one connection, and repeats none.
type oneConnection struct {
	net.Conn
	in *bufio.Reader
}

func (c *oneConnection) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Write(c); err != nil {
		return nil, err
	}
	return http.ReadResponse(c.in, r)
}

func overOne(t *testing.T, conn net.Conn, err error) http.RoundTripper {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &oneConnection{conn, bufio.NewReader(conn)}
}

// openWays are in process, over a socket and over TLS. Each call of connect opens a connection that
// serves many requests.
var openWays = map[string]func(*testing.T, *Server) (host string, connect func() http.RoundTripper){
	"in process": func(_ *testing.T, s *Server) (string, func() http.RoundTripper) {
		return inProcess, func() http.RoundTripper { return s }
	},
	"over a socket": func(t *testing.T, s *Server) (string, func() http.RoundTripper) {
		e, err := s.Start("")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e.Addr().String(), func() http.RoundTripper {
			conn, err := net.Dial("tcp", e.Addr().String())
			return overOne(t, conn, err)
		}
	},
	"over TLS": func(t *testing.T, s *Server) (string, func() http.RoundTripper) {
		e, transport := overTLS(t, s)
		return e.Addr().String(), func() http.RoundTripper {
			config := transport.TLSClientConfig.Clone()
			config.ServerName, _, _ = net.SplitHostPort(e.Addr().String())
			conn, err := tls.Dial("tcp", e.Addr().String(), config)
			return overOne(t, conn, err)
		}
	},
}

// TestNewFaultsReachOpenConnections: a server that was started without faults has those that are set,
// also on a connection that was idle, and none when they are cleared, on the same connection.
func TestNewFaultsReachOpenConnections(t *testing.T) {
	for name, open := range openWays {
		for _, c := range effects {
			t.Run(name+"/"+c.kind, func(t *testing.T) {
				s, q := withOptions(t, nil)
				host, connect := open(t, s)
				idle := connect()
				want := func(what string, status int) {
					t.Helper()
					if got := attempt(t, idle, at(host, aPut())); got.status != status {
						t.Fatalf("%s: got %+v, want status %d", what, got, status)
					}
				}
				want("before", 201)
				setFaults(t, s, "put:"+c.kind)
				got := attempt(t, idle, at(host, aPut()))
				if got.status != c.status || got.code != c.code || (got.err == nil) != (c.err == nil) {
					t.Errorf("with the fault: got %+v, want status %d, code %q, error %v", got, c.status, c.code, c.err)
				}
				if c.err != nil {
					if name != "over TLS" && !errors.Is(got.err, c.err) && !errors.Is(got.err, io.ErrUnexpectedEOF) {
						t.Errorf("with the fault: got %v, want %v", got.err, c.err)
					}
					idle = connect()
				}
				if err := s.SetFaults(nil); err != nil {
					t.Fatal(err)
				}
				want("after", 201)
				if got, want := depth(t, q), 2+c.depth; got != want {
					t.Errorf("depth: got %d, want %d", got, want)
				}
				setFaults(t, s, "put:503")
				want("again", 503)
			})
		}
	}
}

// TestNewFaultsCountFromOne: rules that are set, even the same ones, begin to count at 1.
func TestNewFaultsCountFromOne(t *testing.T) {
	s, _ := withOptions(t, nil)
	var got []int
	for range 2 {
		setFaults(t, s, "put:503@#2 get:500")
		for range 3 {
			got = append(got, attempt(t, s, aPut()).status)
		}
	}
	if want := []int{201, 503, 201, 201, 503, 201}; !slices.Equal(got, want) {
		t.Errorf("statuses: got %v, want %v", got, want)
	}
}

// TestInvalidFaultsChangeNothing: rules that are refused leave those that are set.
func TestInvalidFaultsChangeNothing(t *testing.T) {
	s, _ := faulty(t, 0, "put:503")
	err := s.SetFaults(&Faults{Rules: []Fault{{Kind: FaultBusy}, {Kind: FaultBusy, Rate: 2}}})
	if err == nil || !strings.Contains(err.Error(), "emulator: SetFaults: rule 2: a rate of 2 is out of range") {
		t.Errorf("SetFaults: got %v, want an error about rule 2", err)
	}
	if got := attempt(t, s, aPut()); got.status != 503 {
		t.Errorf("put: got %+v, want status 503 as before", got)
	}
	for _, none := range []*Faults{{}, {Seed: 1}} {
		if err := s.SetFaults(none); err != nil {
			t.Fatal(err)
		}
		if got := attempt(t, s, aPut()); got.status != 201 {
			t.Errorf("put without rules: got %+v, want status 201", got)
		}
	}
}

// TestRulesAreCopied: what the caller does with its rules afterwards does not matter.
func TestRulesAreCopied(t *testing.T) {
	s, _ := withOptions(t, nil)
	rules := []Fault{{Kind: FaultBusy, At: []int64{2, 1}}}
	if err := s.SetFaults(&Faults{Rules: rules}); err != nil {
		t.Fatal(err)
	}
	rules[0].At[0], rules[0].At[1], rules[0].Kind = 7, 7, FaultReset
	for _, want := range []int{503, 503, 201} {
		if got := attempt(t, s, aPut()); got.status != want {
			t.Errorf("put: got %+v, want status %d", got, want)
		}
	}
}

// pipes is a listener whose connections are pipes, so that an endpoint runs in a bubble.
type pipes struct{ *pipelistener.Listener }

// dial opens a connection.
func (p pipes) dial(t *testing.T) http.RoundTripper {
	conn, err := p.Dial(t.Context())
	return overOne(t, conn, err)
}

// onPipes serves a server in a bubble.
func onPipes(t *testing.T, s *Server) pipes {
	p := pipes{pipelistener.New()}
	e := s.serveOn(p, nil, timeouts{10 * time.Second, requestWithin, requestWithin, 2 * time.Minute}, nil)
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// TestADelayThatWasSetEndsWithItsClient: a connection that was idle when a delay was set is watched from
// then on, so that a request whose client has left is not executed.
func TestADelayThatWasSetEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := withOptions(t, nil)
		c := onPipes(t, s).dial(t)
		for _, rules := range []string{"", "put:delay=20s"} {
			setFaults(t, s, rules)
			if got := attempt(t, c, at("127.0.0.1", aPut())); got.status != 201 {
				t.Fatalf("put with the rules %q: got %+v, want status 201", rules, got)
			}
		}
		conn := c.(*oneConnection)
		if err := at("127.0.0.1", aPut()).Write(conn); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		conn.Close()
		time.Sleep(time.Minute)
		if got := depth(t, q); got != 2 {
			t.Errorf("depth: got %d, want 2, without the put whose client has left", got)
		}
	})
}

// TestADelayThatWasSetMayBeLong: a delay that is longer than the deadlines of connections does not end
// them, whether the endpoint was started before it or after it.
func TestADelayThatWasSetMayBeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := withOptions(t, nil)
		p := onPipes(t, s)
		c := p.dial(t)
		for i, want := range []time.Duration{0, time.Hour, time.Hour, time.Hour} {
			switch i {
			case 1:
				setFaults(t, s, "put:delay=1h")
			case 3:
				c = p.dial(t)
			}
			start := time.Now()
			got := attempt(t, c, at("127.0.0.1", signed("POST", "/orders/messages?timeout=7200", wrap("x"))))
			if took := time.Since(start); got.status != 201 || took != want {
				t.Errorf("put %d: got %+v after %v, want status 201 after %v", i, got, took, want)
			}
		}
		if err := s.SetFaults(nil); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if got := attempt(t, c, at("127.0.0.1", aPut())); got.status != 201 || time.Since(start) != 0 {
			t.Errorf("put after the end of the delay: got %+v after %v, want status 201 at once", got, time.Since(start))
		}
	})
}

// TestARequestInProgressKeepsItsFaults: the end of the faults does not end a delay that has begun, nor
// does a new rule hit a request whose head has arrived.
func TestARequestInProgressKeepsItsFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, q := withOptions(t, nil)
		p := onPipes(t, s)
		setFaults(t, s, "put:delay=20s")
		delayed, half := p.dial(t), p.dial(t).(*oneConnection)
		start, done := time.Now(), make(chan outcome)
		go func() { done <- attempt(t, delayed, at("127.0.0.1", aPut())) }()
		time.Sleep(time.Second)
		if err := s.SetFaults(nil); err != nil {
			t.Fatal(err)
		}
		text := raw("POST", "/orders/messages", wrap("x"), "HTTP/1.1", "")
		if _, err := io.WriteString(half, text[:len(text)-3]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		setFaults(t, s, "put:503")
		if _, err := io.WriteString(half, text[len(text)-3:]); err != nil {
			t.Fatal(err)
		}
		if got := status(t, half.in, "POST"); got != 201 {
			t.Errorf("put whose head came before the fault: got status %d, want 201", got)
		}
		if got := attempt(t, half, at("127.0.0.1", aPut())); got.status != 503 {
			t.Errorf("the next one: got %+v, want status 503", got)
		}
		if got := <-done; got.status != 201 || time.Since(start) != 20*time.Second {
			t.Errorf("delayed put: got %+v after %v, want status 201 after 20s", got, time.Since(start))
		}
		if got := depth(t, q); got != 2 {
			t.Errorf("depth: got %d, want 2", got)
		}
	})
}

// TestOurLoopInjectsNothing: a request that our own loop serves had its head before the faults were set,
// which would otherwise have handed it over. There its delay would not end with its client.
func TestOurLoopInjectsNothing(t *testing.T) {
	s, _ := faulty(t, 0, "*:503")
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		status  int
	}{"our own loop": {s.handler(overPlainHTTP).ServeHTTP, 201}, "net/http": {s.handler(overNetHTTP).ServeHTTP, 503}} {
		w := &response{header: http.Header{}}
		r := aPut()
		r.Host = "127.0.0.1"
		if c.handler(w, r); w.status != c.status {
			t.Errorf("%s: got status %d, want %d", name, w.status, c.status)
		}
	}
}

// TestStreamsStayWhenFaultsChange: wake-up streams that are open go on, and new ones open.
func TestStreamsStayWhenFaultsChange(t *testing.T) {
	s, q := withOptions(t, nil)
	e, err := s.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	before := openOver(t, transport, e.Addr().String())
	setFaults(t, s, "*:reset *:delay=1h")
	enqueue(t, q, "abc", 0)
	before.wantLine("event 3")
	openOver(t, transport, e.Addr().String()).close()
	if err := s.SetFaults(nil); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Dequeue(t.Context(), 32, time.Hour); err != nil {
		t.Fatal(err)
	}
	enqueue(t, q, "abcd", 0)
	before.wantLine("event 4")
}

// TestFaultsChangeUnderLoad: while clients send over every way, each request has the old faults or the
// new ones, and nothing is executed without its response or the other way round.
func TestFaultsChangeUnderLoad(t *testing.T) {
	const clients, each = 4, 60
	s, q := withOptions(t, nil)
	var all sync.WaitGroup
	var mu sync.Mutex
	seen := map[int]int64{} // guarded by mu
	for name, open := range openWays {
		host, connect := open(t, s)
		for range clients {
			c := connect()
			all.Go(func() {
				for range each {
					got := attempt(t, c, at(host, aPut()))
					mu.Lock()
					seen[got.status]++
					mu.Unlock()
					if got.status != 201 && got.status != 503 && got.status != 403 {
						t.Errorf("%s: got %+v, want status 201, 503 or 403", name, got)
						return
					}
				}
			})
		}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				setFaults(t, s, []string{"", "*:503", "", "put:403@50% *:delay=1ms"}[i%4])
				s.Counts()
			}
		}
	}()
	all.Wait()
	close(stop)
	<-stopped
	if got, want := seen[201]+seen[503]+seen[403], int64(len(openWays)*clients*each); got != want || depth(t, q) != seen[201] {
		t.Errorf("got %v and depth %d, want %d responses and as many messages as 201", seen, depth(t, q), want)
	}
	counts := s.Counts()
	if counts.Faults[FaultBusy] != seen[503] || counts.Faults[FaultForbidden] != seen[403] {
		t.Errorf("counts: got %v, want %v", counts.Faults, seen)
	}
}

const faultsPath = "?comp=faults"

// withRules is the address that sets these rules.
func withRules(rules string) string { return faultsPath + "&rules=" + url.QueryEscape(rules) }

// TestFaultsAreSetOverTheWire: rules are set, shown and cleared by requests, whatever is set, and over
// every way.
func TestFaultsAreSetOverTheWire(t *testing.T) {
	for name, open := range openWays {
		for _, c := range effects {
			t.Run(name+"/"+c.kind, func(t *testing.T) {
				s, _ := withOptions(t, &Options{Quotas: Quotas{Requests: 1}})
				host, connect := open(t, s)
				way := connect()
				want := func(method, path string, status int, body string) {
					t.Helper()
					if got := send(t, way, at(host, signed(method, path, ""))); got.status != status || got.body != body {
						t.Fatalf("%s %s: got %d %q, want %d %q", method, path, got.status, got.body, status, body)
					}
				}
				want("GET", faultsPath, 200, "")
				rule := "*:" + c.kind
				want("PUT", withRules(rule)+"&seed=7", 204, "")
				for range 3 {
					want("GET", faultsPath, 200, "seed 7\nrule "+rule+"@100%\n")
				}
				if _, hit := s.Counts().Faults[FaultKind(strings.Split(c.kind, "=")[0])]; hit {
					t.Error("a request for the faults had a fault")
				}
				got := attempt(t, connect(), at(host, signed("GET", "/orders?comp=metadata", "")))
				if (got.err == nil) != (c.err == nil) || c.status >= 400 && got.status != c.status {
					t.Errorf("another request: got %+v, want what the fault does", got)
				}
				want("PUT", withRules("put:503@#3,7 get:403@5%"), 204, "")
				want("GET", faultsPath, 200, "seed 0\nrule PutMessage:503@#3,7\nrule GetMessages:403@5%\n")
				want("PUT", withRules("*:delay=24h"), 204, "")
				want("DELETE", faultsPath, 204, "")
				want("GET", faultsPath, 200, "")
				counts := s.Counts()
				if counts.Requests() != 1+counts.Faults[FaultDuplicate] || counts.Operations[GetFaults] != 6 || counts.Operations[SetFaults] != 3 || counts.Operations[ClearFaults] != 1 || counts.OverQuota != 0 {
					t.Errorf("counts: got\n%v\nwant one transaction, ten other requests and none over the quota", counts)
				}
				if table, rest, _ := strings.Cut(counts.String(), "transactions"); strings.Contains(table, "SetFaults") || !strings.Contains(rest, "SetFaults") {
					t.Errorf("got the table\n%s\nwant the faults below the transactions", counts)
				}
			})
		}
	}
}

// TestFaultsAreAuthorized: faults are shown and changed with a key of the account, or a signature like
// that for the properties of its service.
func TestFaultsAreAuthorized(t *testing.T) {
	with := func(change func(*http.Request), method, path string) *http.Request {
		r := signed(method, path, "")
		change(r)
		return r
	}
	unsigned := func(r *http.Request) { r.Header.Del("Authorization") }
	forged := func(r *http.Request) { r.URL.RawQuery = strings.Replace(r.URL.RawQuery, "503", "403", 1) }
	set := withRules("*:503")
	for name, c := range map[string]struct {
		request *http.Request
		status  int
		code    string
	}{
		"no credentials":              {with(unsigned, "PUT", set), 401, "NoAuthenticationInformation"},
		"clear without credentials":   {with(unsigned, "DELETE", faultsPath), 401, "NoAuthenticationInformation"},
		"show without credentials":    {with(unsigned, "GET", faultsPath), 401, "NoAuthenticationInformation"},
		"other rules than signed":     {with(forged, "PUT", set), 403, "AuthenticationFailed"},
		"signature with w":            {with(accountSAS("srt", "s", "sp", "w"), "PUT", set), 204, ""},
		"clear with w":                {with(accountSAS("srt", "s", "sp", "w"), "DELETE", faultsPath), 204, ""},
		"show with r":                 {with(accountSAS("srt", "s", "sp", "r"), "GET", faultsPath), 200, ""},
		"signature without w":         {with(accountSAS("sp", "rdlacup"), "PUT", set), 403, "AuthorizationPermissionMismatch"},
		"clear without w":             {with(accountSAS("sp", "rdlacup"), "DELETE", faultsPath), 403, "AuthorizationPermissionMismatch"},
		"show without r":              {with(accountSAS("sp", "wdlacup"), "GET", faultsPath), 403, "AuthorizationPermissionMismatch"},
		"signature for queues":        {with(accountSAS("srt", "co"), "PUT", set), 403, "AuthorizationResourceTypeMismatch"},
		"signature of a queue":        {with(serviceSAS("orders"), "PUT", set), 403, "AuthenticationFailed"},
		"no rules":                    {signed("PUT", faultsPath, ""), 400, "MissingRequiredQueryParameter"},
		"rules twice":                 {signed("PUT", set+"&Rules=x", ""), 400, "InvalidQueryParameterValue"},
		"rules that are none":         {signed("PUT", withRules("put:404"), ""), 400, "InvalidQueryParameterValue"},
		"rules for the faults":        {signed("PUT", withRules("SetFaults:503"), ""), 400, "InvalidQueryParameterValue"},
		"a seed that is no number":    {signed("PUT", set+"&seed=-1", ""), 400, "InvalidQueryParameterValue"},
		"another verb":                {signed("POST", set, ""), 405, "UnsupportedHttpVerb"},
		"faults of a queue":           {signed("PUT", "/orders"+set, ""), 400, "InvalidQueryParameterValue"},
		"on the secondary location":   {at(inProcess, secondary("PUT", set)), 403, "InsufficientAccountPermissions"},
		"an account that is not here": {with(func(r *http.Request) { r.URL.Path = "/other" }, "PUT", set), 404, "ResourceNotFound"},
	} {
		s, _ := withOptions(t, nil)
		if got := send(t, s, c.request); got.status != c.status || got.header.Get("x-ms-error-code") != c.code {
			t.Errorf("%s: got %d %s, want %d %s", name, got.status, got.body, c.status, c.code)
		}
		if set := s.faults.Load() != nil; set != (name == "signature with w") {
			t.Errorf("%s: faults are set: %v", name, set)
		}
	}
	s, _ := withOptions(t, nil)
	if got := send(t, s, signed("PUT", withRules("put:503 put:404"), "")); !strings.Contains(got.body, `fault "put:404": unknown fault "404": write one of 503`) {
		t.Errorf("invalid rules: got %s, want what is wrong", got.body)
	}
}

func secondary(method, path string) *http.Request {
	r := signed(method, path, "")
	r.URL.Path += "-secondary"
	sign(r)
	return r
}

// TestPagesCannotSetFaults: an endpoint refuses faults from a page of another origin, or by a foreign name, and
// changes nothing.
func TestPagesCannotSetFaults(t *testing.T) {
	onBothLoops(t, func(t *testing.T, e *Endpoint, _ *localqueue.Engine) {
		transport := new(http.Transport)
		defer transport.CloseIdleConnections()
		for _, change := range []func(*http.Request){
			func(r *http.Request) { r.Header.Set("Origin", "http://attacker.example") },
			func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
			func(r *http.Request) { r.Host = "attacker.example" },
		} {
			for method, path := range map[string]string{"PUT": withRules("*:503"), "DELETE": faultsPath, "GET": faultsPath} {
				r := at(e.Addr().String(), signed(method, path, ""))
				change(r)
				if got := send(t, transport, r); got.status != 403 || got.header.Get("x-ms-error-code") != "AuthorizationFailure" {
					t.Errorf("%s: got %d %s, want 403 AuthorizationFailure", method, got.status, got.body)
				}
			}
		}
		if e.of.faults.Load() != nil {
			t.Error("faults were set")
		}
	})
}

// TestRefusedLikeAnUnauthorizedClient: to azqueue, and so to programs, a 403 is a lost right and no passing failure.
func TestRefusedLikeAnUnauthorizedClient(t *testing.T) {
	s, _ := faulty(t, 0, "*:403")
	q, err := azurequeue.Open(s.ConnectionString(), "orders", &azurequeue.Options{Transport: &http.Client{Transport: s}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = q.Enqueue(context.Background(), "x", nil)
	if !errors.Is(err, queue.ErrUnauthorized) || queue.Transient(err) {
		t.Errorf("put: got %v, want %v", err, queue.ErrUnauthorized)
	}
}
