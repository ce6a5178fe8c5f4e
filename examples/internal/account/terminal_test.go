package account

import (
	"testing"

	"github.com/millrace/millrace/examples/internal/cli"
)

func TestTextsAreEscapedForTerminals(t *testing.T) {
	for text, want := range map[string][2]string{
		"Zoë's 5\u202fpm – 写真.jpg": {"Zoë's 5\u202fpm – 写真.jpg", "Zoë's 5\u202fpm – 写真.jpg"},
		"\x1b[2J\a\x7f\u009b":      {`\x1b[2J\a\x7f\u009b`, `\x1b[2J\a\x7f\u009b`},
		"gpj.\u202eexe":            {`gpj.\u202eexe`, `gpj.\u202eexe`},
		"\xff\r":                   {`\xff\r`, `\xff\r`},
		"two\n\tlines":             {"two\n\tlines", `two\n\tlines`},
		"\ufffd":                   {"\ufffd", "\ufffd"},
	} {
		if got := [2]string{cli.Escaped(text), cli.InLine(text)}; got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}
