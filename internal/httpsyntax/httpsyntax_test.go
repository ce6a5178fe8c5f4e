package httpsyntax

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// around returns texts that have the byte b at each kind of place.
func around(b byte) []string {
	one := string([]byte{b})
	return []string{one, one + "x", "x" + one, "x" + one + "x"}
}

// net/http takes a method if it is a token.
func TestATokenIsWhatNetHTTPTakesForOne(t *testing.T) {
	if IsToken("") {
		t.Error(`IsToken("") = true, want false`)
	}
	for b := range 256 {
		for _, s := range around(byte(b)) {
			_, err := http.NewRequestWithContext(t.Context(), s, "http://host/", nil)
			if got, want := IsToken(s), err == nil; got != want {
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
			if got, want := IsValue(s), errors.Is(err, errDial); got != want {
				t.Errorf("IsValue(%q) = %t, want %t: %v", s, got, want, err)
			}
		}
	}
}

func TestTrimmedValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching("[ \t]{0,3}[ \tx\n]{0,3}[ \t]{0,3}").Draw(t, "value")
		if got, want := Trim(s), textproto.TrimString(strings.ReplaceAll(s, "\n", "y")); got != strings.ReplaceAll(want, "y", "\n") {
			t.Errorf("Trim(%q) = %q, want %q", s, got, want)
		}
	})
}

func TestNamesAreCutAndCanonical(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		written := rapid.StringMatching("[-!#$%&'*+.^_`|~0-9A-Za-z]{1,60}").Draw(t, "name")
		name, rest, ok := CutName(written + ": a:b")
		if want := textproto.CanonicalMIMEHeaderKey(written); name != want || rest != " a:b" || !ok {
			t.Errorf("%q: got %q, %q, %t, want %q", written, name, rest, ok, want)
		}
	})
}

// The name may be written in any case, and the common ones cost no allocation.
func TestCommonNames(t *testing.T) {
	for lower, name := range commonHeaders {
		if want := textproto.CanonicalMIMEHeaderKey(lower); name != want {
			t.Errorf("%q is listed as %q, want %q", lower, name, want)
		}
		for _, written := range []string{lower, name, strings.ToUpper(name)} {
			line := written + ":"
			if got, _, ok := CutName(line); got != name || !ok {
				t.Errorf("CutName(%q) = %q, %t, want %q", line, got, ok, name)
			}
			if n := testing.AllocsPerRun(10, func() { CutName(line) }); n != 0 {
				t.Errorf("CutName(%q) allocates %v times, want never", line, n)
			}
		}
	}
}

func TestLinesWithoutAName(t *testing.T) {
	for _, line := range []string{"", ":", ": x", "x", "x y: z", "x : z", " x: z", "\tx: z", "x\x00: z", "\u00e9: z", "(x): z"} {
		if name, rest, ok := CutName(line); ok || name != "" || rest != "" {
			t.Errorf("CutName(%q) = %q, %q, %t, want none", line, name, rest, ok)
		}
	}
}

func TestPlainHosts(t *testing.T) {
	for _, host := range []string{"a", "a.b-c_d:80", "127.0.0.1:10001", "[::1]:80", "HOST"} {
		if !IsPlainHost(host) {
			t.Errorf("IsPlainHost(%q) = false, want true", host)
		}
	}
	for _, host := range []string{"", "a b", "a/b", "a\r\nb", "h\u00f6st", "[fe80::1%25eth0]", "user@host", "a,b", "a?b", "a#b", "a\\b", "a\x7f"} {
		if IsPlainHost(host) {
			t.Errorf("IsPlainHost(%q) = true, want false", host)
		}
	}
}
