package emulator

import (
	"strings"
	"testing"
)

// TestPolicyTimes sets access policies with times in each format that the service
// accepts. They must be returned in its own: in UTC, with seven decimal places.
func TestPolicyTimes(t *testing.T) {
	for sent, back := range map[string]string{
		"2050-12-20":                        "2050-12-20T00:00:00.0000000Z",
		"2050-12-20T21:55Z":                 "2050-12-20T21:55:00.0000000Z",
		"2050-12-20T21:55:00Z":              "2050-12-20T21:55:00.0000000Z",
		"2050-12-20T21:55:00.12Z":           "2050-12-20T21:55:00.1200000Z",
		"2050-12-20T21:55:00.1234567-06:00": "2050-12-21T03:55:00.1234567Z",
		"0001-01-01T00:00:00Z":              "0001-01-01T00:00:00.0000000Z", // the zero time of some clients
		"":                                  "",
	} {
		f := newFixture(t)
		s := f.server()
		set := do(t, s, f.request(t, inProcess, exchange{verb: "PUT", path: "/orders?comp=acl", body: acl(storedPolicy("a", sent, sent, "rp"))}))
		if set.status != 204 {
			t.Fatalf("set %q: got status %d, want 204: %s", sent, set.status, set.body)
		}
		got := do(t, s, f.request(t, inProcess, exchange{verb: "GET", path: "/orders?comp=acl"}))
		if want := acl(storedPolicy("a", back, back, "rp")); !strings.HasSuffix(got.body, want) {
			t.Errorf("set %q, got\n%s\nwant\n%s", sent, got.body, want)
		}
	}
}

// TestPolicyTimesOutOfRange: times whose year in UTC has not four digits are refused.
func TestPolicyTimesOutOfRange(t *testing.T) {
	for _, sent := range []string{"0000-12-31", "0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59-00:01"} {
		f := newFixture(t)
		got := do(t, f.server(), f.request(t, inProcess, exchange{verb: "PUT", path: "/orders?comp=acl", body: acl(storedPolicy("a", "", sent, "r"))}))
		if got.status != 400 || got.header.Get("x-ms-error-code") != "InvalidXmlNodeValue" {
			t.Errorf("%s: got status %d, want 400 InvalidXmlNodeValue: %s", sent, got.status, got.body)
		}
	}
}
