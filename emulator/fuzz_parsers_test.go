package emulator

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// FuzzQuery reads arbitrary queries. What is taken is what net/url takes it for, and
// bounded.
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
			t.Fatalf("%d parameters", len(q))
		}
		if sorted := q.sorted(); len(sorted) != len(q) {
			t.Fatalf("%d parameters, %d sorted", len(q), len(sorted))
		}
		if strings.Contains(raw, ";") {
			return // which net/url refuses
		}
		values, err := url.ParseQuery(raw)
		if err != nil {
			t.Fatalf("%q is taken, but: %v", raw, err)
		}
		n := 0
		for name, vs := range values {
			n += len(vs)
			if !q.has(strings.ToLower(name)) {
				t.Fatalf("%q is missing", name)
			}
		}
		if n != len(q) {
			t.Fatalf("%d parameters, want %d", len(q), n)
		}
	})
}

// FuzzAuthorization shows arbitrary headers, dates and signatures at the door. Nobody
// gets in who has not signed with the key.
func FuzzAuthorization(f *testing.F) {
	f.Add("SharedKey devstoreaccount1:AAAA", "Mon, 02 Jan 2006 15:04:05 GMT", "sv=2026-04-06&ss=q&srt=sco&sp=r&se=9999-01-01&sig=AAAA")
	f.Add("SharedKeyLite devstoreaccount1:", "", "sv=2026-04-06&sr=q&si=x&sig=%2B")
	f.Add("Bearer a.b.c", "x", "sig")
	f.Add("", "", "skoid=1&sktid=2&skt=2026-01-01&ske=2027-01-01&sks=q&skv=2026-04-06&sr=q&sp=raup&se=9999-01-01&sig=AAAA")
	s := New(nil, &Options{Accounts: map[string][]byte{DevelopmentAccount: []byte("nobody has this key in a corpus")}})
	f.Fuzz(func(t *testing.T, authorization, date, parameters string) {
		r := &http.Request{Method: http.MethodGet, Header: http.Header{"Authorization": {authorization}, "X-Ms-Date": {date}, "X-Ms-Version": {newestVersion}},
			URL: &url.URL{Scheme: "https", Host: inProcess, Path: "/" + DevelopmentAccount + "/orders", RawQuery: "comp=metadata&" + parameters}}
		response, err := s.RoundTrip(r)
		if err != nil {
			return // it cannot be sent
		}
		response.Body.Close()
		// A bearer token is not checked further than what it says (see doc.go).
		if response.StatusCode != http.StatusForbidden && response.StatusCode != http.StatusUnauthorized &&
			response.StatusCode != http.StatusBadRequest && !strings.HasPrefix(strings.ToLower(authorization), "bearer ") {
			t.Fatalf("status %d", response.StatusCode)
		}
	})
}
