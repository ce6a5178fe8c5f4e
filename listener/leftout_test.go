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
func TestLinesThatWereLoggedDoNotCountAsLeftOut(t *testing.T) {
	for name, c := range map[string]struct {
		attempts int
		logged   int
		leftOut  float64
	}{
		"poisoned at once":       {attempts: 1, logged: 5, leftOut: 0},
		"retried, then poisoned": {attempts: 2, logged: 6, leftOut: 4}, // one retry is logged, and each that became poison
	} {
		bubble(t, func(b *bundle) {
			b.put(5)
			var log strings.Builder
			o := &Options[job]{
				Logger: slog.New(slog.NewJSONHandler(&log, nil)), Poison: poison.Policy{MaxAttempts: c.attempts},
				RetryDelay: func(int, error) time.Duration { return 0 },
			}
			b.run(New(b.queue, func(context.Context, *Message[job]) error { return errors.New("no address") }, o))
			after(5 * time.Second)
			b.finished()
			all := lines(t, log.String())
			if logged := len(saying(all, "delivery poisoned")) + len(saying(all, "delivery retried")); logged != c.logged {
				t.Errorf("%s: %d deliveries were logged, want %d", name, logged, c.logged)
			}
			leftOut := 0.0
			for _, line := range all {
				n, _ := line["left_out"].(float64)
				leftOut += n
			}
			if leftOut != c.leftOut {
				t.Errorf("%s: got %v left out, want %v", name, leftOut, c.leftOut)
			}
		})
	}
}
