package plainhttp

import (
	"net/textproto"
	"testing"

	"pgregory.net/rapid"
)

func TestCanonicalName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringMatching("[-!#$%&'*+.^_`|~0-9A-Za-z]{1,60}").Draw(t, "name")
		if got, want := canonicalName(name), textproto.CanonicalMIMEHeaderKey(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	})
	for folded, name := range commonHeaders {
		if want := textproto.CanonicalMIMEHeaderKey(folded); name != want {
			t.Errorf("%q is %q, want %q", folded, name, want)
		}
	}
}
