package azurestorage

import (
	"math"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/retry"
)

// A time-out so long that it cannot be doubled stays as it is.
func TestATryTimeoutThatCannotBeDoubledStays(t *testing.T) {
	for _, most := range []time.Duration{math.MaxInt64, math.MaxInt64/2 + 1, math.MaxInt64/4 + 1} {
		for n := range 4 {
			if got := TryTimeout(retry.Repeated(t.Context(), n), most); got < most {
				t.Errorf("%v, repeated %d times: got %v", most, n, got)
			}
		}
	}
}
