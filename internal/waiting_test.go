package internal_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

func TestAPause(t *testing.T) {
	for _, c := range []struct {
		name      string
		wait, end time.Duration // an end of 0: the context has ended before
		took      time.Duration
		passed    bool
	}{
		{"passes", time.Minute, time.Hour, time.Minute, true},
		{"is ended", time.Hour, time.Minute, time.Minute, false},
		{"is over before it begins", time.Hour, 0, 0, false},
		{"of nothing", 0, time.Hour, 0, true},
		{"of less than nothing", -time.Hour, time.Hour, 0, true},
		{"of nothing, ended before", 0, 0, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.end)
				defer cancel()
				begin := time.Now()
				passed := waiting.For(c.wait, ctx.Done())
				if took := time.Since(begin); passed != c.passed || took != c.took {
					t.Errorf("got %t after %v, want %t after %v", passed, took, c.passed, c.took)
				}
			})
		})
	}
}

// Without anything to end it, a pause takes its time.
func TestAPauseThatNothingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if passed := waiting.For(time.Hour, nil); !passed || time.Since(begin) != time.Hour {
			t.Errorf("got %t after %v, want true after an hour", passed, time.Since(begin))
		}
	})
}
