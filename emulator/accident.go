package emulator

import (
	"log/slog"
	"maps"
	"strings"
	"time"

	"github.com/millrace/millrace/queue"
)

// breaks reports whether the connection is closed without an answer.
func (a accident) breaks() bool { return a.kind == FaultReset || a.kind == FaultDrop }

// String names what happened, for the log.
func (a accident) String() string {
	if a.delay == 0 {
		return string(a.kind)
	}
	return strings.TrimSuffix("delay="+a.delay.String()+"+"+string(a.kind), "+")
}

// suffer carries out a request that has an accident. What is closed without an
// answer is seen to by serve.
func (c *call) suffer() *failure {
	c.server.faults.injected[c.accident.kind].Add(1)
	switch c.accident.kind {
	case FaultBusy:
		return errServerBusy
	case FaultInternal:
		return errInternal
	case FaultTimeout:
		return errTimedOut
	case FaultReset:
		return nil
	case FaultDuplicate:
		return c.twice()
	}
	return c.handle(c) // a drop
}

// twice does the work of two requests that are the same, and leaves nothing of
// the first answer.
func (c *call) twice() *failure {
	header := maps.Clone(c.header)
	_ = c.handle(c)
	clear(c.header)
	maps.Copy(c.header, header)
	c.status, c.body = 0, nil
	c.server.counters.arrived(c.operation)
	if c.server.limits != nil {
		c.server.limits.again(c)
	}
	return c.handle(c)
}

// counts returns how many of each kind were injected.
func (f *faults) counts() map[FaultKind]int64 {
	out := map[FaultKind]int64{}
	if f == nil {
		return out
	}
	for kind, n := range f.injected {
		if n := n.Load(); n > 0 {
			out[kind] = n
		}
	}
	return out
}

// report tells the log of a request that is over.
func (c *call) report(began time.Time) {
	level := slog.LevelInfo
	attrs := []slog.Attr{slog.String("operation", string(c.operation))}
	if queue.CheckName(c.queue) == nil { // what is no name could be anything
		attrs = append(attrs, slog.String("queue", c.queue))
	}
	if !c.gone {
		attrs = append(attrs, slog.Int("status", c.status))
	}
	if c.code != "" {
		attrs = append(attrs, slog.String("code", c.code))
	}
	attrs = append(attrs, slog.Duration("duration", time.Since(began)))
	if c.accident != (accident{}) {
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("fault", c.accident.String()))
	}
	c.server.log.LogAttrs(c.request.Context(), level, "request", attrs...)
}
