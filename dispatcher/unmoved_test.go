package dispatcher

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/poison"
)

// Poison that stays in its queue is hidden for longer each time, within bounds, however often that
// was.
func TestTheDelayOfUnmovedPoisonDoublesWithinItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := time.Duration(rapid.Int64Range(int64(time.Microsecond), int64(time.Hour)).Draw(t, "first"))
		longest := first + time.Duration(rapid.Int64Range(0, int64(7*24*time.Hour)).Draw(t, "longest"))
		n := rapid.Int64().Draw(t, "n")
		spread := rapid.Float64Range(0, 1).Draw(t, "spread")
		got := doubled(first, longest, n, spread)
		if got < first || got > longest {
			t.Fatalf("got %v, want it within %v…%v", got, first, longest)
		}
		if next := doubled(first, longest, min(max(n, 0), 1<<60)+1, spread); next < got || n >= 0 && got < longest && next == got && float64(got) > 1.2*float64(first) {
			t.Fatalf("got %v and then %v, want more", got, next)
		}
	})
	for n, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute} {
		if got := doubled(time.Minute, time.Hour, int64(n), 0.5); got.Round(time.Millisecond) != want {
			t.Errorf("after %d times: got %v, want %v", n, got, want)
		}
	}
	if low, high := doubled(time.Minute, time.Hour, 1, 0), doubled(time.Minute, time.Hour, 1, 1); low.Round(time.Millisecond) != 108*time.Second || high.Round(time.Millisecond) != 132*time.Second {
		t.Errorf("the delay is spread over %v…%v, want 2m ± 10 %%", low, high)
	}
}

// The error of poison that stays says for how long it is hidden, and when it is gone; that of a
// settlement which failed otherwise says neither.
func TestTheErrorOfUnmovedPoisonSaysForHowLong(t *testing.T) {
	never, soon := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, c := range []struct {
		name      string
		e         DeliveryError
		want, not string
	}{
		{"could not be moved", DeliveryError{Outcome: Unsettled, Reason: poison.ReasonAttempts, Delay: 8 * time.Second, Delivery: Delivery{Expires: never}},
			"poison (attempts) that could not be moved, hidden for 8s and then tried again", "gone"},
		{"and expires", DeliveryError{Outcome: Unsettled, Reason: poison.ReasonAttempts, Delay: 8 * time.Second, Delivery: Delivery{Expires: soon}},
			"gone at 2030-01-02T03:04:05Z", "unsettled"},
		{"without a known life", DeliveryError{Outcome: Kept, Reason: poison.ReasonRejected, Delay: time.Minute}, "kept hidden for 1m0s:", "gone"},
		{"kept and expires", DeliveryError{Outcome: Kept, Reason: poison.ReasonRejected, Delay: time.Minute, Delivery: Delivery{Expires: soon}},
			"kept hidden for 1m0s, and gone at 2030-01-02T03:04:05Z", "moved"},
		{"moved but not deleted", DeliveryError{Outcome: Unsettled, Reason: poison.ReasonAttempts}, "unsettled", "hidden"},
	} {
		c.e.Err = errors.New("no")
		if text := c.e.Error(); !strings.Contains(text, c.want) || strings.Contains(text, c.not) {
			t.Errorf("%s: got %q, want %q in it and not %q", c.name, text, c.want, c.not)
		}
		delay := false
		for _, a := range c.e.LogValue().Group() {
			delay = delay || a.Equal(slog.Duration("delay", c.e.Delay))
		}
		if delay != (c.e.Delay > 0) {
			t.Errorf("%s: got the attributes %v, want the delay: %v", c.name, c.e.LogValue().Group(), c.e.Delay > 0)
		}
	}
}
