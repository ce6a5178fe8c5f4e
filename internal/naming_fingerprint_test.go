package internal_test

import (
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/naming"
)

func TestTextsThatDifferInNumbersAndIDsAreOne(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", ""},
		{"no address", "no address"},
		{"order 17: no address", "order #: no address"},
		{"order 8f0c: no address", "order #: no address"},
		{`parse "12,5": invalid syntax`, `parse "#,#": invalid syntax`},
		{"dial tcp 10.0.0.7:5432: connection refused", "dial tcp #: connection refused"},
		{"job 3fa85f64-5717-4562-b3fc-2c963f66afa6 failed at 2026-01-02T15:04:05Z.", "job # failed at #."},
		{"GET https://host/a/17?x=3: 503", "GET https://host/a/#?x=#: #"},
	} {
		if got := naming.Fingerprint(test.text); got != test.want {
			t.Errorf("of %q: got %q, want %q", test.text, got, test.want)
		}
	}
}

func TestAFingerprintIsShort(t *testing.T) {
	for _, text := range []string{strings.Repeat("x", 1000), strings.Repeat("word ", 1000), strings.Repeat(" ", 1000), strings.Repeat("9 ", 1000)} {
		if got := len(naming.Fingerprint(text)); got > 200 {
			t.Errorf("got %d bytes for %d", got, len(text))
		}
	}
}

func FuzzFingerprint(f *testing.F) {
	f.Add("order 17: no address")
	f.Add("\xff1 \x00")
	f.Fuzz(func(t *testing.T, text string) {
		once := naming.Fingerprint(text)
		if len(once) > 200 {
			t.Errorf("got %d bytes", len(once))
		}
		if len(text) < 200 {
			if twice := naming.Fingerprint(once); twice != once {
				t.Errorf("of %q: got %q, and of that %q", text, once, twice)
			}
		}
	})
}
