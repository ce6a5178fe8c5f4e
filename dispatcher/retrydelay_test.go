package dispatcher

import (
	"math"
	"testing"
	"time"
)

func TestTheRetryDelayGrowsWithTheFourthPower(t *testing.T) {
	for attempt, want := range map[int]float64{-1: 1, 0: 1, 1: 1, 2: 16, 3: 81, 5: 625, 7: 2401} {
		for range 50 {
			if got := retryDelay(attempt, nil).Seconds(); got < 0.9*want || got > 1.1*want {
				t.Errorf("attempt %d: %v s, want %v within 10 %%", attempt, got, want)
			}
		}
	}
	for _, attempt := range []int{9, 1000, math.MaxInt} {
		if got := retryDelay(attempt, nil); got != time.Hour {
			t.Errorf("attempt %d: %v, want an hour", attempt, got)
		}
	}
}
