package main

import (
	"context"
	"io"
	"log/slog"

	"github.com/millrace/millrace/listener"
)

// newLogger returns a logger of warnings and errors, without times: a user reads them as they appear.
// Records of listeners that start and stop are below its level; the progress line says more.
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

// quieter drops records about deliveries with an expected outcome: discarded duplicates, messages
// given back when stopping, and poison, which ends a request and is reported as its end.
type quieter struct{ slog.Handler }

func (q quieter) Handle(ctx context.Context, r slog.Record) error {
	expected := false
	r.Attrs(func(a slog.Attr) bool {
		switch a.Value.Any() {
		case listener.Discarded, listener.Duplicate, listener.Snoozed, listener.GivenBack, listener.Poisoned:
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
