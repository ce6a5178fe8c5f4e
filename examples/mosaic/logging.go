package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/millrace/millrace/listener"
)

// newLogger logs to w, briefly: the time is now and the reader sits in front of it. What its
// listeners say when they start and stop is left out: the progress line says more.
func newLogger(w io.Writer) *slog.Logger {
	return slog.New(quieter{slog.NewTextHandler(w, &slog.HandlerOptions{
		Level: slog.LevelWarn,
		ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
			if len(groups) == 0 && a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})})
}

// quieter leaves out what listeners say of deliveries that ended as they should:
// duplicates that were discarded, messages given back when stopping, and poison,
// which ends a request and is reported as its end.
type quieter struct{ slog.Handler }

func (q quieter) Handle(ctx context.Context, r slog.Record) error {
	expected := false
	r.Attrs(func(a slog.Attr) bool {
		switch a.Value.Any() {
		case listener.Discarded, listener.Snoozed, listener.GivenBack, listener.Poisoned:
			expected = true
		}
		return !expected
	})
	if expected {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}

func (q quieter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return quieter{q.Handler.WithAttrs(attrs)}
}
func (q quieter) WithGroup(name string) slog.Handler { return quieter{q.Handler.WithGroup(name)} }
