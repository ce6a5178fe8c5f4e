package emulator

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/internal/queuexml"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// section is the exchanges under one heading of docs/protocol.md.
type section struct {
	name      string
	exchanges []exchange
}

// exchange is a request and its expected response. Names in braces in the path and in has are
// replaced by those of the fixture.
type exchange struct {
	name    string
	account string // or its secondary location; "" is the development account
	host    string // of a host-style address; "" is a path-style one
	secure  bool   // over TLS
	verb    string
	path    string // behind the account
	header  map[string]string
	body    string
	change  func(*http.Request) // after signing
	status  int
	inside  int               // the status in process, where pages are not checked; 0 if it is the same
	code    string            // x-ms-error-code; "" on success
	has     string            // regular expression for the body
	back    map[string]string // regular expressions for headers
}

const anyDate = `[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT`

func wrap(text string) string {
	return "<QueueMessage><MessageText>" + text + "</MessageText></QueueMessage>"
}

func meta(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m["x-ms-meta-"+pairs[i]] = pairs[i+1]
	}
	return m
}

func sumMD5(s string) string {
	sum := md5.Sum([]byte(s))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// storedPolicy returns a stored access policy.
func storedPolicy(id, start, expiry, permission string) string {
	return "<SignedIdentifier><Id>" + id + "</Id><AccessPolicy>" + element("Start", start) + element("Expiry", expiry) +
		element("Permission", permission) + "</AccessPolicy></SignedIdentifier>"
}

// rule returns a CORS rule.
func rule(origins, methods, headers, exposed, age string) string {
	return "<CorsRule><AllowedOrigins>" + origins + "</AllowedOrigins><AllowedMethods>" + methods + "</AllowedMethods><MaxAgeInSeconds>" + age +
		"</MaxAgeInSeconds><ExposedHeaders>" + exposed + "</ExposedHeaders><AllowedHeaders>" + headers + "</AllowedHeaders></CorsRule>"
}

// metrics returns enabled metrics.
func metrics(name, days string) string {
	return "<" + name + "><Version>1.0</Version><Enabled>true</Enabled><IncludeAPIs>true</IncludeAPIs><RetentionPolicy><Enabled>true</Enabled><Days>" + days +
		"</Days></RetentionPolicy></" + name + ">"
}

func element(name, text string) string {
	if text == "" {
		return ""
	}
	return "<" + name + ">" + text + "</" + name + ">"
}

// fixture has the queues and messages for an exchange. The engine is seeded, so they are
// always the same.
type fixture struct {
	engine *localqueue.Engine
	names  *strings.Replacer // for paths
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	ctx := context.Background()
	e := must(localqueue.New(&localqueue.Options{Seed: 1}))
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	create := func(name string, metadata map[string]string) queue.Manager {
		q := e.Queue(queue.Name{Account: DevelopmentAccount, Queue: name})
		must(q.Create(ctx, metadata))
		return q
	}
	first, err := create("orders", map[string]string{"kind": "test"}).Enqueue(ctx, "a <b>\r\n", &queue.EnqueueOptions{TTL: time.Hour})
	must(err)
	orders := e.Queue(queue.Name{Account: DevelopmentAccount, Queue: "orders"})
	must(orders.(localengine.Queue).SetAccessPolicy(ctx, []byte(queuexml.Prolog+"<SignedIdentifiers>"+
		storedPolicy("all", "", inHours(1), "raup")+storedPolicy("open", "", "", "r")+storedPolicy("over", "", inHours(-1), "r")+storedPolicy("later", inHours(1), inHours(2), "r")+
		"</SignedIdentifiers>")))
	must(e.Account("second").(localengine.Account).SetServiceProperties(ctx, []byte("<StorageServiceProperties>"+metrics("HourMetrics", "7")+"<Cors>"+
		rule("https://shop.example,https://x.example", "GET,PUT", "x-ms-meta-*,x-ms-version", "x-ms-request-id,x-ms-meta-*", "60")+
		rule("*", "DELETE,POST,HEAD", "*", "", "0")+
		"</Cors></StorageServiceProperties>")))
	for _, name := range []string{"orders", "others"} {
		must(e.Queue(queue.Name{Account: "second", Queue: name}).Create(ctx, map[string]string{"kind": "test"}))
	}
	full := create("full", nil)
	for range 40 {
		_, err := full.Enqueue(ctx, "x", nil)
		must(err)
	}
	leased := create("leased", nil)
	second, err := leased.Enqueue(ctx, "y", nil)
	must(err)
	_, err = leased.Dequeue(ctx, 1, time.Hour)
	must(err)
	must(create("dropped", nil).Drop(ctx))
	return &fixture{engine: e, names: strings.NewReplacer(
		"{id}", string(first.ID), "{receipt}", url.QueryEscape(string(first.Receipt)),
		"{leased}", string(second.ID), "{stale}", url.QueryEscape(string(second.Receipt)))}
}

// request returns the request of an exchange to the server at that host.
func (w *fixture) request(t *testing.T, place string, x exchange) *http.Request {
	t.Helper()
	r := &http.Request{Method: x.verb, Header: http.Header{}, Host: x.host}
	path, query, _ := strings.Cut(w.names.Replace(x.path), "?")
	if x.host == "" {
		path = "/" + cmp.Or(x.account, DevelopmentAccount) + path
	}
	scheme := "http://"
	if x.secure {
		scheme = "https://"
	}
	u, err := url.Parse(scheme + place + path)
	if err != nil {
		t.Fatal(err)
	}
	u.RawQuery = query
	r.URL = u
	if x.body != "" {
		r.Body = io.NopCloser(strings.NewReader(x.body))
		r.ContentLength = int64(len(x.body))
	}
	for name, value := range x.header {
		r.Header.Set(name, value)
	}
	sign(r)
	if x.change != nil {
		x.change(r)
	}
	return r
}

// gotResponse is a response, with the parts that must be equal on every transport.
type gotResponse struct {
	line    string // the status line
	status  int
	length  int64
	header  http.Header
	body    string
	masked  string // the body with varying parts masked
	request *http.Request
}

var varying = regexp.MustCompile(anyDate + `|RequestId:[0-9a-f-]+|Time:[0-9TZ:.-]+|https?://[^/]+/|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ|<Value>[^<]*`)

func do(t *testing.T, transport http.RoundTripper, r *http.Request) gotResponse {
	t.Helper()
	a := send(t, transport, r)
	if want := fmt.Sprintf("HTTP/1.1 %d %s", a.status, http.StatusText(a.status)); a.line != want {
		t.Errorf("status line %q, want %q", a.line, want)
	}
	return a
}

// send sends a request to any server.
func send(t *testing.T, transport http.RoundTripper, r *http.Request) gotResponse {
	t.Helper()
	response, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return gotResponse{response.Proto + " " + response.Status, response.StatusCode, response.ContentLength, response.Header, string(body), varying.ReplaceAllString(string(body), "*"), r}
}

// all are the exchanges of all sections.
func all(yield func(exchange) bool) {
	for _, s := range sections {
		for _, x := range s.exchanges {
			if !yield(x) {
				return
			}
		}
	}
}

// server returns a server for the exchanges.
func (w *fixture) server() *Server {
	key, _ := base64.StdEncoding.DecodeString(DevelopmentKey)
	return must(New(w.engine, &Options{Accounts: map[string][]byte{"second": key},
		Hosts: []string{"devstoreaccount1.queue.core.windows.net", "azurite.queue.svc"}}))
}

// TestProtocol does every exchange in process and over a socket. Both responses must be as
// documented, and equal.
func TestProtocol(t *testing.T) {
	certificate, roots := selfSigned(t)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	for x := range all {
		t.Run(x.name, func(t *testing.T) {
			f := newFixture(t)
			s := f.server()
			inside, unchecked := do(t, s, f.request(t, inProcess, x)), x
			if x.inside != 0 {
				unchecked.status, unchecked.code, unchecked.has = x.inside, inside.header.Get("x-ms-error-code"), ""
			}
			unchecked.check(t, f, inside)
			if class := s.Counts().Statuses[unchecked.status/100]; class != 1 {
				t.Errorf("counts: got %+v, want one response of class %d", s.Counts(), unchecked.status/100)
			}

			f = newFixture(t)
			start := f.server().Start
			if x.secure {
				start = func(address string) (*Endpoint, error) {
					return f.server().StartTLS(address, configOf(certificate))
				}
			}
			e, err := start("")
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			outside := do(t, transport, f.request(t, e.Addr().String(), x))
			x.check(t, f, outside)
			if x.inside != 0 {
				return // the responses differ
			}

			for _, a := range []gotResponse{inside, outside} {
				for _, name := range []string{"Date", "X-Ms-Request-Id", "X-Ms-Time-Next-Visible"} {
					a.header.Del(name)
				}
				if a.length != int64(len(a.body)) && x.verb != "HEAD" { // times and ids have a fixed length
					t.Errorf("Content-Length: got %d, want %d", a.length, len(a.body))
				}
			}
			if strings.Contains(inside.body, "://") { // the length of the address varies
				inside.header.Del("Content-Length")
				outside.header.Del("Content-Length")
			} else if inside.length != outside.length {
				t.Errorf("Content-Length: got %d in process and %d over the socket, want the same", inside.length, outside.length)
			}
			if inside.status != outside.status || inside.masked != outside.masked || !maps.EqualFunc(inside.header, outside.header, equalValues) {
				t.Errorf("responses differ: got in process\n%d %v\n%s\nand over the socket\n%d %v\n%s", inside.status, inside.header, inside.masked, outside.status, outside.header, outside.masked)
			}
		})
	}
}

func equalValues(a, b []string) bool { return strings.Join(a, "\n") == strings.Join(b, "\n") }

func (x exchange) check(t *testing.T, w *fixture, a gotResponse) {
	t.Helper()
	if a.status != x.status {
		t.Fatalf("status: got %d, want %d: %s", a.status, x.status, a.body)
	}
	if got := a.header.Get("x-ms-error-code"); got != x.code {
		t.Errorf("code: got %q, want %q: %s", got, x.code, a.body)
	}
	for _, name := range []string{"Date", "X-Ms-Request-Id", "X-Ms-Version"} {
		if a.header.Get(name) == "" {
			t.Errorf("header %s is missing", name)
		}
	}
	for name, want := range x.back {
		if !regexp.MustCompile(want).MatchString(a.header.Get(name)) {
			t.Errorf("header %s: got %q, want %q", name, a.header.Get(name), want)
		}
	}
	if x.code != "" && x.verb != "HEAD" && !strings.Contains(a.body, "<Code>"+x.code+"</Code><Message>") {
		t.Errorf("document: got %s, want the code %s", a.body, x.code)
	}
	if x.has != "" && !regexp.MustCompile(w.names.Replace(x.has)).MatchString(a.body) {
		t.Errorf("document: got %s\nwant %s", a.body, w.names.Replace(x.has))
	}
	if a.status >= 300 {
		given := a.request.URL.Query()
		_, credentials, _ := strings.Cut(a.request.Header.Get("Authorization"), " ")
		for _, secret := range []string{DevelopmentKey, credentials, given.Get("popreceipt"), given.Get("sig")} {
			if len(secret) > 3 && strings.Contains(a.body, secret) {
				t.Errorf("the error contains a secret: %s", a.body)
			}
		}
	}
	if a.status == 204 && (a.body != "" || a.header.Get("Content-Length") != "") {
		t.Errorf("204: got the body %q and the headers %v, want neither body nor Content-Length", a.body, a.header)
	}
}

// signWithDate signs without x-ms-date, which the documents allow.
func signWithDate(r *http.Request) {
	r.Header.Del("x-ms-date")
	r.Header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	r.Header.Set("Authorization", authorization(r, r.Header.Get("Date")))
}

// TestExchangesCoverEveryFailure: some exchange gets each failure of the package, so that none is
// dead.
func TestExchangesCoverEveryFailure(t *testing.T) {
	seen := map[string]bool{"InternalError": true, "OperationTimedOut": true, "InvalidInput": true, "ServerBusy": true} // these need a fault
	for x := range all {
		seen[x.code] = true
	}
	for _, f := range []*failure{errInvalidURI, errInvalidResourceName, errOutOfRangeInput, errInvalidHeaderValue, errMissingHeader,
		errInvalidQueryValue, errOutOfRangeQueryValue, errMissingQuery, errInvalidXML, errInvalidXMLValue, errInvalidInput,
		errInvalidMetadata, errEmptyMetadataKey, errMetadataTooLarge, errInvalidAuthentication, errInvalidMD5, errMD5Mismatch,
		errPopReceiptMismatch, errNoAuthentication, errInvalidToken, errAuthenticationFailed, errAuthorizationFailure, errPermissionMismatch, errProtocolMismatch,
		errResourceTypeMismatch, errServiceMismatch, errSourceIPMismatch, errPreflight, errReadOnly, errResourceNotFound, errMessageNotFound, errQueueNotFound, errUnsupportedVerb,
		errQueueAlreadyExists, errQueueBeingDeleted, errMissingLength, errBodyTooLarge, errInternal, errTimedOut, errRequestTimeout, errServerBusy, errAccountBusy} {
		if !seen[f.code] {
			t.Errorf("no exchange gets the failure %s", f.code)
		}
	}
}

func TestUpdateWithoutBodyKeepsText(t *testing.T) {
	w := newFixture(t)
	s := must(New(w.engine, nil))
	path := func(p string) string { return w.names.Replace(p) }
	do(t, s, signed("PUT", path("/orders/messages/{id}?popreceipt={receipt}&visibilitytimeout=0"), ""))
	if a := do(t, s, signed("GET", "/orders/messages?peekonly=true", "")); !strings.Contains(a.body, "<MessageText>a &lt;b&gt;&#xD;\n</MessageText>") {
		t.Errorf("text: got %s, want it unchanged", a.body)
	}
}

func TestBodyShorterThanItsLength(t *testing.T) {
	w := newFixture(t)
	s := must(New(w.engine, nil))
	r := signed("POST", "/orders/messages", wrap("x"))
	r.Body = io.NopCloser(bytes.NewReader([]byte("<Queue")))
	if a := do(t, s, r); a.header.Get("x-ms-error-code") != "InvalidInput" {
		t.Errorf("got status %d, want 400 InvalidInput: %s", a.status, a.body)
	}
}
