package listener

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Kinds with lines that were left out and not reported yet are kept when there is no room for
// a new kind.
func TestTheLogForgetsNoLinesThatWereLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limiter logLimiter
		for i := range maxKinds {
			limiter.allow(fmt.Sprintf("message %d", i), "refused")
			limiter.allow(fmt.Sprintf("message %d", i), "refused")
		}
		time.Sleep(time.Minute)
		limiter.allow("a new message", "refused")
		left := 0
		for _, k := range limiter.suppressed() {
			left += k.suppressed
		}
		if left != maxKinds {
			t.Errorf("lines left out: got %d, want %d", left, maxKinds)
		}
	})
}

// An abandoned handler may still fail after the listener has logged what it left out.
func TestLinesThatWereLeftOutAreReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limiter logLimiter
		limiter.allow("delivery retried", "refused")
		limiter.allow("delivery retried", "refused")
		if got := len(limiter.suppressed()); got != 1 {
			t.Errorf("kinds with lines left out: got %d, want 1", got)
		}
		if got := limiter.suppressed(); len(got) != 0 {
			t.Errorf("the second time: got %+v, want none", got)
		}
		time.Sleep(logInterval)
		if leftOut, ok := limiter.allow("delivery retried", "refused"); !ok || leftOut != 0 {
			t.Errorf("next line: got %d left out, logged %v; want 0, true", leftOut, ok)
		}
	})
}
