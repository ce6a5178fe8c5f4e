package schedule

import (
	"slices"
	"testing"
	"time"
)

// TestTheScheduleIsTheSameForAll: it depends only on the seed, is in order, and has about as many jobs as asked
// for.
func TestTheScheduleIsTheSameForAll(t *testing.T) {
	due := Random(1000, 10*time.Second, 7)
	if !slices.Equal(due, Random(1000, 10*time.Second, 7)) || slices.Equal(due, Random(1000, 10*time.Second, 8)) {
		t.Error("got another schedule for the same seed, or the same for another")
	}
	if n := len(due); n < 9500 || n > 10_500 || !slices.IsSorted(due) || due[n-1] >= 10*time.Second {
		t.Errorf("got %d jobs up to %v, want about 10,000 in 10 s", n, due[n-1])
	}
	if one := Random(0.001, time.Millisecond, 1); len(one) != 1 || one[0] > time.Millisecond {
		t.Errorf("a window that is too short: got %v, want one job in it", one)
	}
}
