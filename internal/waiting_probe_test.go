package internal_test

import (
	"math"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

// After the pause one caller at a time may try.
func TestOneProbeAtATime(t *testing.T) {
	var p waiting.Probe
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p.Pause(now.Add(time.Second))
	if p.Begin(now) || p.Possible(now) || p.End() {
		t.Error("a probe began during the pause")
	}
	now = p.Due()
	if !p.Possible(now) || !p.Begin(now) {
		t.Error("no probe after the pause")
	}
	if p.Possible(now) || p.Begin(now.Add(time.Hour)) {
		t.Error("a second probe began while one was under way")
	}
	if !p.End() || p.End() {
		t.Error("got no end of the probe, or two")
	}
	if !p.Begin(now) {
		t.Error("no probe after the one before had ended")
	}
}

func TestADoubledPauseIsBounded(t *testing.T) {
	const most = time.Minute
	for _, c := range []struct {
		first time.Duration
		times int
		want  time.Duration
	}{
		{time.Second, 0, time.Second},
		{time.Second, 5, 32 * time.Second},
		{time.Second, 6, most},
		{time.Second, 33, most}, // the first that overflows is 34
		{time.Second, 34, most},
		{time.Second, 64, most},
		{time.Second, math.MaxInt, most},
		{time.Hour, 0, most},
	} {
		if got := waiting.Doubled(c.first, c.times, most); got != c.want {
			t.Errorf("Doubled(%v, %d): got %v, want %v", c.first, c.times, got, c.want)
		}
	}
}
