package emulator

import (
	"log/slog"
	"time"

	"github.com/millrace/millrace/queue"
)

// logRequest logs one request; status 0 means no response. Without a log it costs a comparison.
func (c *call) logRequest(status int, code string) {
	log := c.server.log
	if log == nil {
		return
	}
	attributes := make([]slog.Attr, 0, 9)
	attributes = append(attributes, slog.String("operation", string(c.operation)))
	// An invalid name could be anything, even a misplaced receipt: do not log it.
	if c.accountState != nil {
		attributes = append(attributes, slog.String("account", c.account))
	}
	if c.queue != "" && queue.CheckName(c.queue) == nil {
		attributes = append(attributes, slog.String("queue", c.queue))
	}
	if status != 0 {
		attributes = append(attributes, slog.Int("status", status))
	}
	if code != "" {
		attributes = append(attributes, slog.String("code", code))
	}
	level := slog.LevelInfo
	if c.injection != (injection{}) {
		level = slog.LevelWarn
		attributes = append(attributes, slog.String("fault", c.injection.String()))
	}
	if c.limited {
		attributes = append(attributes, slog.Bool("limited", true))
	}
	attributes = append(attributes,
		slog.Duration("took", time.Since(c.began)),
		slog.String("id", c.header["X-Ms-Request-Id"][0]))
	log.LogAttrs(c.request.Context(), level, "request", attributes...)
}
