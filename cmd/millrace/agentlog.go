package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// agentLog is a [slog.Handler] of plain lines for people: the time, the pool and what happened. It leaves out changes of the number of
// instances, which are printed as decisions.
type agentLog struct {
	out   io.Writer
	attrs []slog.Attr
}

// Enabled implements [slog.Handler].
func (*agentLog) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

// Handle implements [slog.Handler].
func (h *agentLog) Handle(_ context.Context, r slog.Record) error {
	pool, message, decision := "", r.Message, false
	var details, stack strings.Builder
	add := func(a slog.Attr) bool {
		value := a.Value.Resolve().String()
		switch {
		case a.Key == "pool":
			pool = value
		case a.Key == "from" && r.Level == slog.LevelInfo:
			decision = true
		case a.Key == "times" && value == "1" || value == "": // says nothing
		case strings.Contains(value, "\n"):
			fmt.Fprintf(&stack, "\n  %s:\n    %s", a.Key, strings.ReplaceAll(strings.TrimSpace(value), "\n", "\n    "))
		case a.Key == "how":
			fmt.Fprintf(&details, ", %s", value)
		default:
			fmt.Fprintf(&details, ", %s %s", strings.ReplaceAll(a.Key, "_", " "), value)
		}
		return true
	}
	for _, a := range h.attrs {
		add(a)
	}
	r.Attrs(add)
	if decision {
		return nil
	}
	if pool != "" {
		message = pool + ": " + strings.TrimPrefix(message, "pool "+pool+": ")
	}
	if details.Len() > 0 {
		message += " (" + details.String()[len(", "):] + ")"
	}
	_, err := fmt.Fprintf(h.out, "%s %s\n", instant(r.Time), escapeControls(redact(message+stack.String())))
	return err
}

// WithAttrs implements [slog.Handler].
func (h *agentLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &agentLog{out: h.out, attrs: append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)}
}

// WithGroup implements [slog.Handler]. Groups are not shown.
func (h *agentLog) WithGroup(string) slog.Handler { return h }
