package listener

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/poison"
)

// Lines that are always logged do not count as suppressed.
func TestLoggedLinesAreNotCountedAsLeftOut(t *testing.T) {
	for name, c := range map[string]struct {
		attempts    int
		wantLogged  int
		wantLeftOut float64
	}{
		"poisoned at once":       {attempts: 1, wantLogged: 5, wantLeftOut: 0},
		"retried, then poisoned": {attempts: 2, wantLogged: 6, wantLeftOut: 4}, // one retry and every poison message are logged
	} {
		bubble(t, func(b *bundle) {
			b.put(5)
			var log strings.Builder
			o := &Options[job]{
				Logger: slog.New(slog.NewJSONHandler(&log, nil)), Poison: poison.Policy{MaxAttempts: c.attempts},
				RetryDelay: func(int, error) time.Duration { return 0 },
			}
			b.run(New(b.queue, func(context.Context, *Message[job]) error { return errors.New("no address") }, o))
			advance(5 * time.Second)
			b.mustFinish()
			all := logLines(t, log.String())
			if got := len(withMessage(all, "delivery poisoned")) + len(withMessage(all, "delivery retried")); got != c.wantLogged {
				t.Errorf("%s: got %d deliveries logged, want %d", name, got, c.wantLogged)
			}
			leftOut := 0.0
			for _, line := range all {
				n, _ := line["left_out"].(float64)
				leftOut += n
			}
			if leftOut != c.wantLeftOut {
				t.Errorf("%s: got %v lines left out, want %v", name, leftOut, c.wantLeftOut)
			}
		})
	}
}
