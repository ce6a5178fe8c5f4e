package emulator

import (
	"log/slog"
	"time"

	"github.com/millrace/millrace/queue"
)

// record logs one request. Status 0 is no answer. It costs a comparison while
// there is no log.
func (c *call) logRequest(status int, code string) {
	log := c.server.log
	if log == nil {
		return
	}
	attributes := make([]slog.Attr, 0, 9)
	attributes = append(attributes, slog.String("operation", string(c.operation)))
	// Names that are none could be anything, a receipt in the wrong place too.
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
