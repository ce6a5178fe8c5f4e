package account

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/examples/internal/plainlog"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
)

func TestTheLogHasPlainLinesWithoutWhatIsExpected(t *testing.T) {
	down := &queue.Error{Op: "dequeue", Kind: queue.ErrUnavailable, Err: errors.New("refused")}
	for name, c := range map[string]struct {
		log  func(l *slog.Logger)
		want string
	}{
		"information":     {func(l *slog.Logger) { l.Info("started") }, ""},
		"a warning":       {func(l *slog.Logger) { l.Warn("tile skipped", "file", "a b.jpg", "bytes", 3) }, "tile skipped: file=a b.jpg, bytes=3\n"},
		"with attributes": {func(l *slog.Logger) { l.With("a", 1).WithGroup("g").With("b", 2).Error("no") }, "no: a=1, b=2\n"},
		"two lines":       {func(l *slog.Logger) { l.Error("no", "error", errors.Join(errors.New("x"), errors.New("y"))) }, "no: error=x; y\n"},
		"an outage":       {func(l *slog.Logger) { l.Warn("poll failed", "error", error(down)) }, ""},
		"a wrapped one":   {func(l *slog.Logger) { l.Warn("retried", "error", fmt.Errorf("send: %w", down)) }, ""},
		"a lost lease":    {func(l *slog.Logger) { l.Warn("delivery lost", "outcome", listener.Lost) }, ""},
		"a failure": {func(l *slog.Logger) {
			l.Warn("failed", "outcome", dispatcher.Retried, "error", errors.New("disk full"))
		}, "failed: outcome=retried, error=disk full\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			c.log(plainlog.New(&out))
			if out.String() != c.want {
				t.Errorf("got %q, want %q", out.String(), c.want)
			}
		})
	}
}
