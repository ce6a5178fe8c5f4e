package azuritetest

import (
	"testing"
	"time"
)

// Until polls a condition of another process or of real time 50 times a second, and fails the
// test if it does not hold within a minute.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}
