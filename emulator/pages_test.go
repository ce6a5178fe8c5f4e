package emulator

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// fetched returns the headers with which a browser says where a request comes from.
func fetched(site, mode string, more ...string) map[string]string {
	m := inPairs(more)
	m["Sec-Fetch-Site"], m["Sec-Fetch-Mode"] = site, mode
	return m
}

// fromOwnPage marks a request as that of a page which the endpoint itself served.
func fromOwnPage(r *http.Request) { r.Header.Set("Origin", "http://"+r.URL.Host) }

// repeated sets several values of a header.
func repeated(name string, values ...string) func(*http.Request) {
	return func(r *http.Request) { r.Header[name] = values }
}

const (
	elsewhere  = "https://attacker.example"
	wasRefused = `<Message>This request is not authorized to perform this operation. A browser sent it for a web page of another origin`
	hostGiven  = `does not accept the host "`
)

// pageExchanges are the requests that a page can make a browser send. Endpoints refuse most of
// them; in process there are no browsers. The account "second" has CORS rules.
var pageExchanges = []exchange{
	{name: "page: fetch", verb: "GET", path: "/orders/messages", header: fetched("cross-site", "cors", "Origin", elsewhere), status: 403,
		inside: 200, code: "AuthorizationFailure", has: wasRefused + `(?s).*<Origin>` + elsewhere + `</Origin>`},
	{name: "page: fetch of the endpoint's own page", verb: "GET", path: "/orders/messages", header: fetched("same-origin", "cors"), change: fromOwnPage, status: 200},
	{name: "page: own origin, but from elsewhere", verb: "GET", path: "/orders/messages", header: fetched("cross-site", "cors"),
		change: fromOwnPage, status: 403, inside: 200, code: "AuthorizationFailure"},
	{name: "page: fetch of another port of this machine", verb: "GET", path: "/orders/messages",
		header: fetched("same-site", "cors", "Origin", "http://127.0.0.1:1"), status: 403, inside: 200, code: "AuthorizationFailure"},
	{name: "page: own host over TLS", verb: "GET", path: "/orders/messages",
		change: func(r *http.Request) { r.Header.Set("Origin", "https://"+r.URL.Host) }, status: 403, inside: 200, code: "AuthorizationFailure"},
	{name: "page: fetch without CORS", verb: "POST", path: "/orders/messages",
		header: fetched("cross-site", "no-cors", "Origin", elsewhere, "Content-Type", "text/plain"), body: wrap("x"), status: 403, inside: 201,
		code: "AuthorizationFailure"},
	{name: "page: form", verb: "POST", path: "/orders/messages",
		header: fetched("cross-site", "navigate", "Origin", elsewhere, "Content-Type", "text/plain"), body: wrap("x"), change: accountSAS(),
		status: 403, inside: 201, code: "AuthorizationFailure"},
	{name: "page: form of an opaque origin", verb: "POST", path: "/orders/messages", header: fetched("cross-site", "navigate", "Origin", "null"),
		body: wrap("x"), status: 403, inside: 201, code: "AuthorizationFailure"},
	{name: "page: image", verb: "GET", path: "/orders/messages", header: fetched("cross-site", "no-cors", "Sec-Fetch-Dest", "image"),
		change: accountSAS(), status: 403, inside: 200, code: "AuthorizationFailure", has: wasRefused},
	{name: "page: image on another port of this machine", verb: "GET", path: "/orders/messages",
		header: fetched("same-site", "no-cors", "Sec-Fetch-Dest", "image"), change: accountSAS(), status: 403, inside: 200,
		code: "AuthorizationFailure"},
	{name: "page: image where rules allow some origins", account: "second", verb: "GET", path: "/orders/messages",
		header: fetched("cross-site", "no-cors"), status: 403, inside: 200, code: "AuthorizationFailure"},
	{name: "page: link to a queue", verb: "GET", path: "/orders/messages",
		header: fetched("cross-site", "navigate", "Sec-Fetch-Dest", "document"), change: accountSAS(), status: 403, inside: 200,
		code: "AuthorizationFailure"},
	{name: "page: address that a person typed", verb: "GET", path: "/orders/messages", header: fetched("none", "navigate"), change: accountSAS(), status: 200},
	{name: "page: image of the endpoint's own page", verb: "GET", path: "/orders/messages", header: fetched("same-origin", "no-cors"), status: 200},
	{name: "page: site in upper case", verb: "GET", path: "/orders/messages", header: fetched("Same-Origin", "cors"), status: 403, inside: 200,
		code: "AuthorizationFailure"},
	{name: "page: empty site", verb: "GET", path: "/orders/messages", header: fetched("", "cors"), status: 403, inside: 200, code: "AuthorizationFailure"},
	{name: "page: unknown site", verb: "GET", path: "/orders/messages", header: fetched("same-origin, cross-site", "cors"), status: 403,
		inside: 200, code: "AuthorizationFailure"},
	{name: "page: site twice", verb: "GET", path: "/orders/messages", change: repeated("Sec-Fetch-Site", "same-origin", "same-origin"),
		status: 403, inside: 200, code: "AuthorizationFailure"},
	{name: "page: origin twice", account: "second", verb: "POST", path: "/orders/messages", body: wrap("x"),
		change: repeated("Origin", elsewhere, elsewhere), status: 403, inside: 201, code: "AuthorizationFailure"},
	{name: "page: empty origin", account: "second", verb: "POST", path: "/orders/messages", body: wrap("x"), change: repeated("Origin", ""),
		status: 403, inside: 201, code: "AuthorizationFailure"},
	{name: "page: WebSocket", verb: "GET", path: "/orders/messages",
		header: fetched("cross-site", "websocket", "Origin", elsewhere, "Connection", "Upgrade", "Upgrade", "websocket"), change: accountSAS(),
		status: 403, inside: 200, code: "AuthorizationFailure"},
	{name: "page: unknown account", account: "unknown", verb: "GET", path: "/orders/messages",
		header: fetched("cross-site", "cors", "Origin", elsewhere), status: 403, inside: 404, code: "AuthorizationFailure"},
	{name: "page: no address", account: "second", verb: "GET", path: "/orders/else", header: fetched("cross-site", "no-cors"), status: 403,
		inside: 400, code: "AuthorizationFailure"},
	{name: "page: that a rule allows", account: "second", verb: "GET", path: "/orders/messages",
		header: fetched("cross-site", "cors", "Origin", "https://x.example"), status: 200,
		back: map[string]string{"Access-Control-Allow-Origin": "^https://x.example$"}},
	{name: "page: that a rule allows to do something else", account: "second", verb: "PUT", path: "/orders?comp=metadata",
		header: fetched("cross-site", "cors", "Origin", "https://y.example"), status: 403, inside: 204, code: "AuthorizationFailure"},
	{name: "page: opaque origin where a rule allows any", account: "second", verb: "POST", path: "/orders/messages",
		header: fetched("cross-site", "no-cors", "Origin", "null"), body: wrap("x"), status: 201},
	{name: "page: preflight", account: "second", verb: "OPTIONS", path: "/orders/messages",
		header: fetched("cross-site", "cors", "Origin", "https://x.example", "Access-Control-Request-Method", "GET"), change: anonymously,
		status: 200},
	{name: "page: preflight without rules", verb: "OPTIONS", path: "/orders/messages",
		header: fetched("cross-site", "cors", "Origin", elsewhere, "Access-Control-Request-Method", "GET"), change: anonymously, status: 403,
		code: "CorsPreflightFailure"},
	{name: "page: preflight without origin", verb: "OPTIONS", path: "/orders/messages", header: fetched("cross-site", "cors"),
		change: anonymously, status: 403, inside: 400, code: "AuthorizationFailure"},
	{name: "page: name of its own that leads here", host: "attacker.example:10001", verb: "GET", path: "/devstoreaccount1/orders/messages",
		header: fetched("same-origin", "cors", "Origin", "http://attacker.example:10001"), status: 403, inside: 200, code: "AuthorizationFailure",
		has: hostGiven + `attacker.example:10001"`},
	{name: "page: host-style name of its own", host: "devstoreaccount1.queue.attacker.example", verb: "GET", path: "/orders/messages",
		status: 403, inside: 200, code: "AuthorizationFailure", has: hostGiven},
	{name: "host: below localhost", host: "Millrace.Localhost.:10001", verb: "GET", path: "/devstoreaccount1/orders/messages", status: 200},
	{name: "host: address of IPv6", host: "[::1]", verb: "GET", path: "/devstoreaccount1/orders/messages", status: 200},
	{name: "host: unspecified address", host: "0.0.0.0:10001", verb: "GET", path: "/devstoreaccount1/orders/messages", status: 403, inside: 200,
		code: "AuthorizationFailure"},
}

// TestAcceptedHosts: an endpoint accepts its own hosts and those of Options.Hosts only.
func TestAcceptedHosts(t *testing.T) {
	named := must(New(nil, &Options{Hosts: []string{"millrace", "192.0.2.7", "2001:db8::1"}}))
	accounts := map[string][]byte{"shop": []byte("a key of this test alone")}
	public := must(New(nil, &Options{Public: true, Accounts: accounts}))
	publicNamed := must(New(nil, &Options{Public: true, Accounts: accounts, Hosts: []string{"millrace"}}))
	for host, allowedBy := range map[string]string{
		"127.0.0.1": "all", "127.0.0.1:10001": "all", "127.9.8.7": "all", "127.0.0.1.:80": "all", "localhost": "all", "LOCALHOST:1": "all",
		"localhost.:80": "all", "localhost:": "all",
		"a.localhost": "all", "devstoreaccount1.queue.localhost:10001": "all", "[::1]": "all", "[::1]:80": "all", "[::ffff:127.0.0.1]": "all",

		"millrace": "named", "Millrace:10001": "named", "millrace.": "named",
		"192.0.2.7": "open", "[2001:db8::1]:80": "open", // of three addresses, publicNamed has none

		"": "public", ":80": "public", "example.com": "public", "0.0.0.0": "public", "[::]": "public", "10.0.0.1": "public", "128.0.0.1": "public",
		"127.1": "public", "2130706433": "public",
		"127.0.0.1.example.com": "public", "localhost.example.com": "public", "notlocalhost": "public", "not-localhost:80": "public",
		".localhost": "public", "a..localhost": "public",
		"a/b.localhost": "public", "a@b.localhost": "public", "a%2e.localhost": "public", "localhost:80:80": "public", "localhost:http": "public",
		"localhost, example.com": "public",
		"::1":                    "public", "[::1": "public", "[::1]80": "public", "[localhost]": "public", "[127.0.0.1]": "public", "millrace.example.com": "public",
		"x.millrace": "public", "millrace:x": "public",
		"127.0.0.1:80@example.com": "public", "example.com:80@localhost": "public", "localhost\u00a0": "public", "127.0.0.01": "public",
		"[::1%25lo]": "public", "[::1%lo]:80": "public",
	} {
		want := map[*Server]bool{must(New(nil, nil)): allowedBy == "all", named: allowedBy != "public", public: true, publicNamed: allowedBy == "all" || allowedBy == "named"}
		for s, want := range want {
			if got := s.acceptsHost(host); got != want {
				t.Errorf("acceptsHost(%q) of a server with public %v and hosts %q: got %v, want %v", host, s.public, s.hosts, got, want)
			}
		}
	}
	for _, host := range []string{"", "millrace:10001", "http://millrace", "mill race", "*", ".millrace", "millrace.", "[::1]"} {
		if s, err := New(nil, &Options{Hosts: []string{"fine", host}}); err == nil || !strings.Contains(err.Error(), "without a port") {
			t.Errorf("New with the host %q: got %v, %v; want an error", host, s, err)
		}
	}
}

// FuzzHost: a host that an endpoint accepts is this machine also if it is parsed as part of a
// URL.
func FuzzHost(f *testing.F) {
	for _, host := range []string{"localhost:1", "a.localhost.", "[::1]:80", "127.0.0.1@x", "[::ffff:7f00:1]", "x:80@a.localhost"} {
		f.Add(host)
	}
	s := must(New(nil, nil))
	f.Fuzz(func(t *testing.T, host string) {
		if !s.acceptsHost(host) {
			return
		}
		u, err := url.Parse("http://" + host + "/x")
		if err != nil || u.User != nil || u.Path != "/x" || u.RawQuery+u.Fragment != "" {
			t.Fatalf("host %q is accepted, but parses as %+v, %v", host, u, err)
		}
		name := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
		if ip := net.ParseIP(name); name != "localhost" && !strings.HasSuffix(name, ".localhost") && (ip == nil || !ip.IsLoopback()) {
			t.Fatalf("host %q is accepted, but its name is %q", host, name)
		}
	})
}

// onBothLoops runs a test with an endpoint that our own loop serves and one that net/http
// serves. Both have the queue "orders" and a front.
func onBothLoops(t *testing.T, test func(t *testing.T, e *Endpoint, engine *localqueue.Engine)) {
	for name, delay := range map[string]time.Duration{"plainhttp": 0, "net/http": 1} {
		t.Run(name, func(t *testing.T) {
			engine := must(localqueue.New(nil))
			s := must(New(engine, &Options{Delay: delay, Front: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "front") })}))
			createOrders(t, s)
			e, err := s.Start("")
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if _, ok := e.server.(*waitingServer); ok != (delay > 0) {
				t.Fatalf("server with a delay of %v: got %T", delay, e.server)
			}
			test(t, e, engine)
		})
	}
}

// TestRequestsOfPages sends requests that no client makes, but that a page might get a browser,
// or a proxy in between, to send.
func TestRequestsOfPages(t *testing.T) {
	const own, other = "127.0.0.1", "attacker.example"
	get := func(target, proto, headers string) string {
		r := signed("GET", "/orders?comp=metadata", "")
		var signature strings.Builder
		r.Header.Write(&signature)
		return "GET " + target + r.URL.RequestURI() + " " + proto + "\r\n" + headers + signature.String() + "\r\n"
	}
	host := func(name string) string { return "Host: " + name + "\r\n" }
	const http11 = "HTTP/1.1"
	for name, c := range map[string]struct {
		text string
		want []int
	}{
		"own host":                                {get("", http11, host(own)), []int{200}},
		"own host, and something odd":             {get("", http11, host(own)+"Pragma: x\r\n"), []int{200}},
		"other host":                              {get("", http11, host(other)), []int{403}},
		"other host, and something odd":           {get("", http11, host(other)+"Pragma: x\r\n"), []int{403}},
		"absolute form of another host":           {get("http://"+other, http11, host(own)), []int{403}},
		"absolute form, and another Host":         {get("http://"+own, http11, host(other)), []int{200}}, // the target counts (RFC 9112, section 3.2.2)
		"absolute form with a user":               {get("http://"+own+"@"+other, http11, host(own)), []int{403}},
		"HTTP/1.0":                                {get("", "HTTP/1.0", host(own)), []int{200}},
		"HTTP/1.0 and another host":               {get("", "HTTP/1.0", host(other)), []int{403}},
		"HTTP/1.0 without a host":                 {get("", "HTTP/1.0", ""), []int{403}},
		"empty host":                              {get("", http11, host("")), []int{403}},
		"two hosts":                               {get("", http11, host(own)+host(other)), []int{400}},
		"folded host":                             {get("", http11, "Host: "+own+"\r\n ."+other+"\r\n"), []int{400}},
		"origin in odd case":                      {get("", http11, host(own)+"oRIGIN: https://"+other+"\r\n"), []int{403}},
		"origin that is folded":                   {get("", http11, host(own)+"Origin:\r\n https://"+other+"\r\n"), []int{403}},
		"origin with only a tab":                  {get("", http11, host(own)+"Origin:\t\r\n"), []int{403}},
		"own origin":                              {get("", http11, host(own)+"Origin: http://"+own+"\r\n"), []int{200}},
		"own origin, then another":                {get("", http11, host(own)+"Origin: http://"+own+"\r\nOrigin: https://"+other+"\r\n"), []int{403}},
		"own origin and more":                     {get("", http11, host(own)+"Origin: http://"+own+" https://"+other+"\r\n"), []int{403}},
		"own origin as a beginning":               {get("", http11, host(own)+"Origin: http://"+own+"."+other+"\r\n"), []int{403}},
		"site in odd case":                        {get("", http11, host(own)+"sec-FETCH-site: cross-site\r\n"), []int{403}},
		"site with blanks":                        {get("", http11, host(own)+"Sec-Fetch-Site: \t same-origin \r\n"), []int{200}},
		"two sites":                               {get("", http11, host(own)+"Sec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\n"), []int{403}},
		"upgrade of a page":                       {get("", http11, host(own)+"Connection: Upgrade\r\nUpgrade: websocket\r\nOrigin: https://"+other+"\r\n"), []int{403}},
		"upgrade of another client":               {get("", http11, host(own)+"Connection: Upgrade\r\nUpgrade: websocket\r\n"), []int{200}},
		"refused, then another on the connection": {get("", http11, host(own)+"Sec-Fetch-Site: cross-site\r\n") + get("", http11, host(own)), []int{403, 200}},
		"front":                              {"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", []int{200}},
		"front for another host":             {"GET / HTTP/1.1\r\n" + host(other) + "\r\n", []int{403}},
		"link to the front":                  {"GET / HTTP/1.1\r\n" + host(own) + "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n\r\n", []int{200}},
		"link to the front for another host": {"GET / HTTP/1.1\r\n" + host(other) + "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n\r\n", []int{403}},
		"link to the front with two modes": {"GET / HTTP/1.1\r\n" + host(own) +
			"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Mode: no-cors\r\n\r\n", []int{403}},
		"link to more than the front": {"GET /?comp=list HTTP/1.1\r\n" + host(own) +
			"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n\r\n", []int{403}},
		"form to the front": {"POST / HTTP/1.1\r\n" + host(own) +
			"Content-Length: 0\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n\r\n", []int{403}},
		"fetch of the front": {"GET / HTTP/1.1\r\n" + host(own) + "Origin: https://" + other +
			"\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: cors\r\n\r\n", []int{403}},
		"link to the front of an origin": {"GET / HTTP/1.1\r\n" + host(own) + "Origin: https://" + other +
			"\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n\r\n", []int{403}},
		"image of the front": {"GET /favicon.ico HTTP/1.1\r\n" + host(own) +
			"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n\r\n", []int{403}},
		"link to the icon of the front": {"GET /favicon.ico HTTP/1.1\r\n" + host(own) +
			"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n\r\n", []int{403}},
		"icon of the front": {"GET /favicon.ico HTTP/1.1\r\n" + host(own) +
			"Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: no-cors\r\n\r\n", []int{200}},
		"own page with the front's address":         {"GET / HTTP/1.1\r\n" + host(own) + "Origin: http://" + own + "\r\nSec-Fetch-Site: same-origin\r\n\r\n", []int{200}},
		"two origins at the front, the first is ok": {"GET / HTTP/1.1\r\n" + host(own) + "Origin: http://" + own + "\r\nOrigin: null\r\n\r\n", []int{403}},
	} {
		t.Run(name, func(t *testing.T) {
			onBothLoops(t, func(t *testing.T, e *Endpoint, _ *localqueue.Engine) {
				conn, in := dial(t, e)
				io.WriteString(conn, c.text)
				for _, want := range c.want {
					if got := status(t, in, "GET"); got != want {
						t.Errorf("status %d, want %d", got, want)
					}
				}
			})
		})
	}
}

// TestRefusedBodyIsNotReadAsARequest sends a form that is refused. Its body, which is a request,
// must not be read as the next one of the connection.
func TestRefusedBodyIsNotReadAsARequest(t *testing.T) {
	onBothLoops(t, func(t *testing.T, e *Endpoint, engine *localqueue.Engine) {
		put := raw("POST", "/orders/messages", wrap("smuggled"), "HTTP/1.1", "")
		form := fmt.Sprintf("POST /devstoreaccount1/orders/messages HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s", elsewhere, len(put), put)
		conn, in := dial(t, e)
		io.WriteString(conn, form+raw("GET", "/orders?comp=metadata", "", "HTTP/1.1", ""))
		for _, want := range []int{403, 200} {
			if got := status(t, in, "POST"); got != want {
				t.Errorf("status %d, want %d", got, want)
			}
		}
		if got := depth(t, engine.Queue(queue.Name{Account: DevelopmentAccount, Queue: "orders"})); got != 0 {
			t.Errorf("depth: got %d, want 0", got)
		}
	})
}

// TestPagesOverTLS: the origin of an endpoint with TLS begins with https.
func TestPagesOverTLS(t *testing.T) {
	s := must(New(nil, nil))
	createOrders(t, s)
	e, transport := overTLS(t, s)
	for origin, want := range map[string]int{"https://": 200, "http://": 403} {
		r := signed("GET", "/orders?comp=metadata", "")
		r.URL.Scheme, r.URL.Host, r.Host = "https", e.Addr().String(), ""
		r.Header.Set("Origin", origin+e.Addr().String())
		if a := send(t, transport, r); a.status != want {
			t.Errorf("origin %s…: got status %d, want %d: %s", origin, a.status, want, a.body)
		}
	}
}

// TestPagesOfAPublicServer: any host is accepted, but a page of another origin still needs a
// CORS rule.
func TestPagesOfAPublicServer(t *testing.T) {
	key := []byte("a key of this test alone")
	s := must(New(nil, &Options{Public: true, Accounts: map[string][]byte{"shop": key}}))
	e, err := s.Start("")
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	transport := &http.Transport{DisableKeepAlives: true}
	for name, c := range map[string]struct {
		host, origin, site string
		want               int
	}{
		"its host":       {"millrace.example", "", "", 401},
		"its own page":   {"millrace.example", "http://millrace.example", "same-origin", 401},
		"another page":   {"millrace.example", elsewhere, "cross-site", 403},
		"a page's image": {"millrace.example", "", "cross-site", 403},
	} {
		r, err := http.NewRequest(http.MethodGet, "http://"+e.Addr().String()+"/shop/orders/messages", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		r.Header.Set("X-Ms-Version", newestVersion)
		for name, value := range map[string]string{"Origin": c.origin, "Sec-Fetch-Site": c.site} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		if a := send(t, transport, r); a.status != c.want {
			t.Errorf("%s: got status %d, want %d: %s", name, a.status, c.want, a.body)
		}
	}
}

// TestPagesAreCheckedOnEndpointsOnly: in process, and behind the user's own HTTP server, there
// is no check.
func TestPagesAreCheckedOnEndpointsOnly(t *testing.T) {
	s := must(New(nil, nil))
	r := signed("PUT", "/orders", "")
	r.Host = "attacker.example"
	r.Header.Set("Origin", elsewhere)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	if a := do(t, s, r); a.status != 201 {
		t.Errorf("RoundTrip: got status %d, want 201: %s", a.status, a.body)
	}
	in, err := incoming(r)
	if err != nil {
		t.Fatal(err)
	}
	w := &response{header: make(http.Header)}
	if s.ServeHTTP(w, in); w.status != 409 && w.status != 204 {
		t.Errorf("ServeHTTP: got status %d, want 409 or 204: %s", w.status, w.body.String())
	}
}
