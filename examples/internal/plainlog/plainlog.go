// Package plainlog is a log of plain lines for people.
package plainlog

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"

	"github.com/millrace/millrace/examples/internal/cli"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
)

// New returns a logger of warnings and errors, each a plain line for people.
func New(w io.Writer) *slog.Logger { return slog.New(&handler{w: w}) }

// handler is a [slog.Handler] of plain lines. It leaves out expected events, and failures that the
// roles repeat: discarded duplicates, messages given back or lost to another process, and poison,
// which ends a request and is reported as its end. It also leaves out the failures of requests
// while the queue server does not answer, because package account prints one line about that.
type handler struct {
	w     io.Writer
	attrs []slog.Attr
}

// Enabled implements [slog.Handler].
func (*handler) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}

// Handle implements [slog.Handler].
func (h *handler) Handle(_ context.Context, r slog.Record) error {
	var line strings.Builder
	line.WriteString(r.Message)
	separator, shown := ": ", !strings.HasPrefix(r.Message, "wake-ups ") // without them, the queues are polled
	add := func(a slog.Attr) bool {
		if isExpected(a.Value.Resolve().Any()) {
			shown = false
			return false
		}
		line.WriteString(separator + a.Key + "=" + a.Value.Resolve().String())
		separator = ", "
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	if !shown {
		return nil
	}
	_, err := io.WriteString(h.w, cli.Escaped(cli.OneLine(errors.New(line.String())))+"\n")
	return err
}

// isExpected reports whether a record with this value is left out.
func isExpected(value any) bool {
	switch value {
	case listener.Discarded, listener.Duplicate, listener.Snoozed, listener.Returned, listener.Poisoned, listener.Lost:
		return true
	}
	err, ok := value.(error)
	return ok && queue.Transient(err)
}

// WithAttrs implements [slog.Handler].
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{w: h.w, attrs: append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

// WithGroup implements [slog.Handler]. Groups are not shown.
func (h *handler) WithGroup(string) slog.Handler { return h }
