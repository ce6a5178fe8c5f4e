package internal_test

import (
	"testing"

	"github.com/millrace/millrace/internal/azurestorage"
)

func TestWhatProvesWhoWeAreIsTakenOutOfTexts(t *testing.T) {
	for text, want := range map[string]string{
		"Authorization: SharedKey acct:S3cret== and": "Authorization: SharedKey REDACTED and",
		"SharedKeyLite acct:S3cret==":                "SharedKeyLite REDACTED",
		`{"authorization":"bearer ey.S3cret-_.x"}`:   `{"authorization":"bearer REDACTED"}`,
		"<p>/q?sv=1&amp;sig=S3cret%3D&amp;sp=r</p>":  "<p>/q?sv=1&amp;sig=REDACTED&amp;sp=r</p>",
		"the ring bearer, and a shared key":          "the ring bearer, and a shared key",
	} {
		if got := (azurestorage.Location{}).Redact(text); got != want {
			t.Errorf("redact(%q) = %q, want %q", text, got, want)
		}
	}
}
