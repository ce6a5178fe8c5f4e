package emulator

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// FuzzQuery parses arbitrary queries. An accepted query has the same parameters as with net/url,
// and not too many.
func FuzzQuery(f *testing.F) {
	f.Add("comp=list&Prefix=a%20b&maxresults=3")
	f.Add("&&a&=b&a=%zz;")
	f.Add(strings.Repeat("a=b&", maxParameters+1))
	f.Fuzz(func(t *testing.T, raw string) {
		q, failed := parseQuery(nil, raw)
		if failed != nil {
			return
		}
		if len(q) > maxParameters {
			t.Fatalf("parameters: got %d, want at most %d", len(q), maxParameters)
		}
		if sorted := q.sorted(); len(sorted) != len(q) {
			t.Fatalf("sorted: got %d parameters, want %d", len(sorted), len(q))
		}
		if strings.Contains(raw, ";") {
			return // which net/url refuses
		}
		values, err := url.ParseQuery(raw)
		if err != nil {
			t.Fatalf("%q is accepted, but net/url refuses it: %v", raw, err)
		}
		n := 0
		for name, vs := range values {
			n += len(vs)
			if !q.has(strings.ToLower(name)) {
				t.Fatalf("parameter %q is missing", name)
			}
		}
		if n != len(q) {
			t.Fatalf("parameters: got %d, want %d", len(q), n)
		}
	})
}

// FuzzAuthorization sends requests with arbitrary Authorization headers, dates and signatures. No
// request that was not signed with the key may be authorized.
func FuzzAuthorization(f *testing.F) {
	f.Add("SharedKey devstoreaccount1:AAAA", "Mon, 02 Jan 2006 15:04:05 GMT", "sv=2026-04-06&ss=q&srt=sco&sp=r&se=9999-01-01&sig=AAAA")
	f.Add("SharedKeyLite devstoreaccount1:", "", "sv=2026-04-06&sr=q&si=x&sig=%2B")
	f.Add("Bearer a.b.c", "x", "sig")
	f.Add("", "", "skoid=1&sktid=2&skt=2026-01-01&ske=2027-01-01&sks=q&skv=2026-04-06&sr=q&sp=raup&se=9999-01-01&sig=AAAA")
	s := must(New(nil, &Options{Accounts: map[string][]byte{DevelopmentAccount: []byte("nobody has this key in a corpus")}}))
	f.Fuzz(func(t *testing.T, authorization, date, parameters string) {
		r := &http.Request{Method: http.MethodGet, Header: http.Header{"Authorization": {authorization}, "X-Ms-Date": {date}, "X-Ms-Version": {newestVersion}},
			URL: &url.URL{Scheme: "https", Host: inProcess, Path: "/" + DevelopmentAccount + "/orders", RawQuery: "comp=metadata&" + parameters}}
		response, err := s.RoundTrip(r)
		if err != nil {
			return // it cannot be sent
		}
		response.Body.Close()
		// The signature of a bearer token is not checked (see doc.go).
		if response.StatusCode != http.StatusForbidden && response.StatusCode != http.StatusUnauthorized &&
			response.StatusCode != http.StatusBadRequest && !strings.HasPrefix(strings.ToLower(authorization), "bearer ") {
			t.Fatalf("status: got %d, want 400, 401 or 403", response.StatusCode)
		}
	})
}
