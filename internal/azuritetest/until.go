package azuritetest

import (
	"testing"
	"time"
)

// Until waits until something holds that another process does, or that real time brings, and
// fails the test when it has not in a minute. It asks 50 times a second.
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
			t.Fatalf("waited in vain until %s", what)
		}
	}
}
