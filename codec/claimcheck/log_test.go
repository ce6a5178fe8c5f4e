package claimcheck_test

import (
	"log/slog"
	"strings"
)

// lines is a log. It is read when its listener has ended.
type lines struct{ strings.Builder }

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// want checks that the log has the text.
func (l *lines) want(b *bundle, text string) {
	b.Helper()
	if !strings.Contains(l.String(), text) {
		b.Errorf("got log\n%s\nwant %s", l, text)
	}
}

// without checks that the log does not have the text.
func (l *lines) without(b *bundle, text string) {
	b.Helper()
	if strings.Contains(l.String(), text) {
		b.Errorf("got log\n%s\nwant no %q in it", l, text)
	}
}
