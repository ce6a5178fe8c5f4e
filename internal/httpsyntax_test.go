package internal_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/httpsyntax"
)

// around returns texts that have the byte b at each kind of place.
func around(b byte) []string {
	one := string([]byte{b})
	return []string{one, one + "x", "x" + one, "x" + one + "x"}
}

// net/http takes a method if it is a token.
func TestATokenIsWhatNetHTTPTakesForOne(t *testing.T) {
	if httpsyntax.IsToken("") {
		t.Error(`IsToken("") = true, want false`)
	}
	for b := range 256 {
		for _, s := range around(byte(b)) {
			_, err := http.NewRequestWithContext(t.Context(), s, "http://host/", nil)
			if got, want := httpsyntax.IsToken(s), err == nil; got != want {
				t.Errorf("IsToken(%q) = %t, want %t: %v", s, got, want, err)
			}
		}
	}
}

var errDial = errors.New("the request got as far as a connection")

// net/http checks the values of a request before it connects.
func TestAValueIsWhatNetHTTPSends(t *testing.T) {
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return nil, errDial }}
	for b := range 256 {
		for _, s := range append(around(byte(b)), "") {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://host/", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header["X"] = []string{s}
			answer, err := transport.RoundTrip(r)
			if err == nil {
				answer.Body.Close()
			}
			if got, want := httpsyntax.IsValue(s), errors.Is(err, errDial); got != want {
				t.Errorf("IsValue(%q) = %t, want %t: %v", s, got, want, err)
			}
		}
	}
}

func TestTrimmedValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching("[ \t]{0,3}[ \tx\n]{0,3}[ \t]{0,3}").Draw(t, "value")
		if got, want := httpsyntax.Trim(s), textproto.TrimString(strings.ReplaceAll(s, "\n", "y")); got != strings.ReplaceAll(want, "y", "\n") {
			t.Errorf("Trim(%q) = %q, want %q", s, got, want)
		}
	})
}

func TestNamesAreCutAndCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		written := rapid.StringMatching("[-!#$%&'*+.^_`|~0-9A-Za-z]{1,60}").Draw(t, "name")
		name, rest, ok := httpsyntax.CutName(written + ": a:b")
		if want := textproto.CanonicalMIMEHeaderKey(written); name != want || rest != " a:b" || !ok {
			t.Errorf("%q: got %q, %q, %t, want %q", written, name, rest, ok, want)
		}
	})
}

// commonNames are header names that the queue service and its clients send.
const commonNames = `Accept Accept-Charset Accept-Encoding Accept-Language Access-Control-Request-Headers
	Access-Control-Request-Method Authorization Cache-Control Connection Content-Encoding Content-Language
	Content-Length Content-Md5 Content-Type Cookie Date Host If-Match If-Modified-Since If-None-Match
	If-Unmodified-Since Keep-Alive Origin Range Referer Request-Id Sec-Fetch-Dest Sec-Fetch-Mode Sec-Fetch-Site
	Server Traceparent Tracestate Transfer-Encoding User-Agent X-Ms-Approximate-Messages-Count
	X-Ms-Client-Request-Id X-Ms-Date X-Ms-Error-Code X-Ms-Popreceipt X-Ms-Request-Id
	X-Ms-Return-Client-Request-Id X-Ms-Time-Next-Visible X-Ms-Version`

// The name may be written in any case, and the common ones cost no allocation.
func TestCommonNames(t *testing.T) {
	for name := range strings.FieldsSeq(commonNames) {
		for _, written := range []string{strings.ToLower(name), name, strings.ToUpper(name)} {
			line := written + ":"
			if got, _, ok := httpsyntax.CutName(line); got != name || !ok {
				t.Errorf("CutName(%q) = %q, %t, want %q", line, got, ok, name)
			}
			if n := testing.AllocsPerRun(10, func() { httpsyntax.CutName(line) }); n != 0 {
				t.Errorf("CutName(%q) allocates %v times, want never", line, n)
			}
		}
	}
}

func TestLinesWithoutAName(t *testing.T) {
	for _, line := range []string{"", ":", ": x", "x", "x y: z", "x : z", " x: z", "\tx: z", "x\x00: z", "\u00e9: z", "(x): z"} {
		if name, rest, ok := httpsyntax.CutName(line); ok || name != "" || rest != "" {
			t.Errorf("CutName(%q) = %q, %q, %t, want none", line, name, rest, ok)
		}
	}
}

func TestPlainHosts(t *testing.T) {
	for _, host := range []string{"a", "a.b-c_d:80", "127.0.0.1:10001", "[::1]:80", "HOST"} {
		if !httpsyntax.IsPlainHost(host) {
			t.Errorf("IsPlainHost(%q) = false, want true", host)
		}
	}
	for _, host := range []string{"", "a b", "a/b", "a\r\nb", "h\u00f6st", "[fe80::1%25eth0]", "user@host", "a,b", "a?b", "a#b", "a\\b", "a\x7f"} {
		if httpsyntax.IsPlainHost(host) {
			t.Errorf("IsPlainHost(%q) = true, want false", host)
		}
	}
}
