package emulator

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/xml"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// ways are the ways in which FuzzServe authorizes requests, each with all permissions it can
// have. The first does not.
var ways = []func(*http.Request){
	anonymously,
	sign,
	func(r *http.Request) { sign(r); signLite(r) },
	accountSAS(),
	accountSAS("sv", "2026-04-06", "sip", "127.0.0.1", "spr", "https,http", "st", "2026-01-01"),
	serviceSAS("orders"),
	serviceSAS("orders", "si", "all", "sp", "", "se", ""),
	func(r *http.Request) { r.URL.Scheme = "https"; withToken(nil)(r) },
	delegationSAS("orders", "AAAA"),
}

// FuzzServe sends arbitrary requests, most of them authorized. None may panic, and each response
// must have a status of the protocol, the common headers and a well-formed document. No
// unauthorized request may succeed.
func FuzzServe(f *testing.F) {
	for x := range all {
		path, query, _ := strings.Cut(x.path, "?")
		name, value := "", ""
		for name, value = range x.header {
			break
		}
		way := 1
		if x.secure {
			way = 7
		}
		if x.host == "" {
			path = "/" + cmp.Or(x.account, DevelopmentAccount) + path
		}
		f.Add(x.verb, x.host, path, query, name, value, x.body, uint8(way))
		if x.change != nil { // parameters with a signature, tokens and the like
			r := newExchange(x)
			f.Add(x.verb, x.host, path, r.URL.RawQuery, "Authorization", r.Header.Get("Authorization"), x.body, uint8(0))
		}
	}
	for way := range ways {
		f.Add("GET", "", "/devstoreaccount1/orders/messages", "", "Origin", "https://x.example", "", uint8(way))
	}
	f.Add("PUT", "devstoreaccount1.queue.", "/q%2e/messages/%ff", "popreceipt=%00&visibilitytimeout=1", "x-ms-meta-\x00", "\r\n", "<", uint8(1))
	f.Fuzz(func(t *testing.T, method, host, path, rawQuery, name, value, body string, way uint8) {
		engine := must(localqueue.New(&localqueue.Options{Seed: 1}))
		q := engine.Queue(queue.Name{Account: DevelopmentAccount, Queue: "orders"})
		if err := q.Create(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		if err := q.(localengine.Queue).SetAccessPolicy(context.Background(), []byte(acl(storedPolicy("all", "", "9999-01-01", "raup")))); err != nil {
			t.Fatal(err)
		}
		if err := engine.Account(DevelopmentAccount).(localengine.Account).SetServiceProperties(context.Background(),
			[]byte(rules(rule("*", "GET,PUT", "*", "*", "1")+rule("https://x.example", "POST", "", "x-*", "1")))); err != nil {
			t.Fatal(err)
		}
		m, err := q.Enqueue(context.Background(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		names := strings.NewReplacer("{id}", string(m.ID), "{receipt}", url.QueryEscape(string(m.Receipt)))
		u := &url.URL{Scheme: "http", Host: inProcess}
		if unescaped, err := url.PathUnescape(names.Replace(path)); err == nil {
			u.Path, u.RawPath = unescaped, names.Replace(path)
		} else {
			u.Path = path
		}
		u.RawQuery = names.Replace(rawQuery)
		r := &http.Request{Method: method, Host: host, URL: u, Header: http.Header{name: {value}}, ContentLength: int64(len(body)),
			Body: io.NopCloser(strings.NewReader(body))}
		authorized := int(way)%len(ways) != 0
		if authorized {
			sign(r)
			ways[int(way)%len(ways)](r)
		}
		options := new(Options)
		if !authorized { // a new key makes the signatures of the corpus invalid
			options.Accounts = map[string][]byte{DevelopmentAccount: []byte(rand.Text())}
		}
		s := must(New(engine, options))
		response, err := s.RoundTrip(r)
		if err != nil {
			return // what cannot be sent is not for the server
		}
		defer response.Body.Close()
		document, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode < 200 || response.StatusCode > 599 || response.StatusCode == http.StatusInternalServerError {
			t.Fatalf("status: got %d, want 200 to 599 other than 500: %s", response.StatusCode, document)
		}
		if !authorized && response.StatusCode < 400 && method != http.MethodOptions {
			t.Fatalf("status of an unauthorized request: got %d, want 400 or more", response.StatusCode)
		}
		if (response.StatusCode >= 400) != (response.Header.Get("x-ms-error-code") != "") || response.Header.Get("x-ms-request-id") == "" {
			t.Fatalf("status %d: got the headers %v, want a request id, and a code if and only if it is an error", response.StatusCode, response.Header)
		}
		for name, values := range response.Header {
			if strings.ContainsAny(name+strings.Join(values, ""), "\r\n\x00") {
				t.Fatalf("header %q: got %q, want no line breaks and no NUL", name, values)
			}
		}
		if len(document) > 0 {
			if err := xml.Unmarshal(document, new(struct{ XMLName xml.Name })); err != nil {
				t.Fatalf("response document: got %v, want well-formed XML: %s", err, document)
			}
		}
		if c := s.Counts(); c.Requests() != 1 || c.Statuses[response.StatusCode/100] != 1 {
			t.Fatalf("counts: got %+v, want one request with its status", c)
		}
	})
}

// newExchange returns the request of an exchange, with the names in braces not replaced.
func newExchange(x exchange) *http.Request {
	path, query, _ := strings.Cut(x.path, "?")
	r := &http.Request{Method: x.verb, Host: x.host, Header: http.Header{}, ContentLength: int64(len(x.body)),
		URL: &url.URL{Scheme: "http", Host: inProcess, Path: "/" + DevelopmentAccount + path, RawQuery: query}}
	sign(r)
	x.change(r)
	return r
}

// FuzzToken parses arbitrary texts as tokens. An accepted one has three parts, and times that
// can be compared.
func FuzzToken(f *testing.F) {
	f.Add(token(nil))
	f.Add(token(map[string]any{"exp": 1e300, "aud": []string{"a"}}))
	f.Add("a.b.c")
	f.Add("eyJhbGciOiJub25lIn0.eyJleHAiOi0xfQ.")
	f.Fuzz(func(t *testing.T, given string) {
		parsed, ok := parseToken(given)
		if !ok {
			return
		}
		if strings.Count(given, ".") != 2 || parsed.Expiry < 0 || parsed.Expiry > 1<<40 || parsed.NotBefore < 0 || parsed.NotBefore > 1<<40 {
			t.Fatalf("claims: got %+v of %q, want three parts and times in range", parsed, given)
		}
		if isIssuer(parsed.Issuer) && !strings.HasPrefix(parsed.Issuer, "https://") {
			t.Fatalf("issuer: got %q accepted, want https://", parsed.Issuer)
		}
		if isAudience(parsed.Audience, "a") && !strings.Contains(parsed.Audience, "a") && !strings.HasPrefix(parsed.Audience, "e406") {
			t.Fatalf("audience: got %q accepted, want the account's or Azure Storage", parsed.Audience)
		}
	})
}

// FuzzAddresses parses arbitrary ranges of addresses. No address may be in an invalid range, and
// in a range of one address only that address.
func FuzzAddresses(f *testing.F) {
	f.Add("127.0.0.1", "127.0.0.0-127.0.0.255")
	f.Add("::1", "::-::ffff")
	f.Add("10.0.0.1", "::ffff:10.0.0.1")
	f.Fuzz(func(t *testing.T, at, addresses string) {
		from, err := netip.ParseAddr(at)
		if err != nil {
			return
		}
		from = from.Unmap().WithZone("")
		in, ok := inRange(from, addresses)
		if in && !ok {
			t.Fatalf("%v is in the invalid range %q", from, addresses)
		}
		if first, last, _ := strings.Cut(addresses, "-"); in && last == "" && netip.MustParseAddr(first).Unmap().WithZone("") != from {
			t.Fatalf("%v is in the range of the single address %s", from, first)
		}
	})
}

// FuzzInstant parses arbitrary texts as times. An accepted time survives formatting and parsing.
func FuzzInstant(f *testing.F) {
	for _, text := range []string{"2026-01-02", "2026-01-02T03:04Z", "2026-01-02T03:04:05.1234567Z", "2026-01-02T03:04:05+07:00", "2026-02-30", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		at, ok := parseTime(text)
		if !ok {
			return
		}
		if again, ok := parseTime(formatTime(at)); !ok || !again.Equal(at.Truncate(time.Second)) {
			t.Fatalf("%s parsed again: got %v, want %v", text, again, at)
		}
	})
}
