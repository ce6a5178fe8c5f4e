package dispatcher

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

func TestTheRetryDelayGrowsWithTheFourthPower(t *testing.T) {
	for attempt, want := range map[int]float64{-1: 1, 0: 1, 1: 1, 2: 16, 3: 81, 5: 625, 7: 2401} {
		for i := range 50 {
			for _, got := range []float64{retryDelay(queue.ID(fmt.Sprint(i)), attempt).Seconds(), RetryCurve(attempt).Seconds()} {
				if got < 0.9*want || got > 1.1*want {
					t.Errorf("attempt %d: got %v s, want %v within 10 %%", attempt, got, want)
				}
			}
		}
	}
	for i, attempt := range []int{9, 1000, math.MaxInt} {
		if got := retryDelay(queue.ID(fmt.Sprint(i)), attempt); got != time.Hour {
			t.Errorf("attempt %d: got %v, want 1h", attempt, got)
		}
	}
}

func TestTheRetryDelayIsSpreadByTenPercentBothWays(t *testing.T) {
	for spread, want := range map[float64]time.Duration{0: 14400 * time.Millisecond, 0.5: 16 * time.Second, 1: 17600 * time.Millisecond} {
		if got := curve(2, spread).Round(time.Millisecond); got != want {
			t.Errorf("second attempt, spread %v: got %v, want %v", spread, got, want)
		}
	}
}
