package dispatcher

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
)

// A lease is renewed at half of it, or up to an eighth later. Where renewals are slow it is
// renewed one and a half times their duration before its end, but not in its first quarter.
func TestALeaseIsRenewedInTimeForSlowRenewals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		visibility := time.Duration(rapid.IntRange(5, 60).Draw(t, "visibility")) * time.Second
		latency := time.Duration(rapid.IntRange(0, 200).Draw(t, "latency")) * 100 * time.Millisecond
		k := &leaseManager{latency: latency}
		l := &lease{id: queue.ID(rapid.String().Draw(t, "id")), renewals: rapid.Int32Range(0, 100).Draw(t, "renewals")}
		latest := max(visibility-safetyMargin-latency*3/2, visibility/4)
		got, earliest := k.renewAfter(l, visibility), min(visibility/2, latest)
		latest = min(visibility/2+visibility/8, latest)
		if got < earliest || got > latest {
			t.Fatalf("renewAfter: got %v, want within %v…%v", got, earliest, latest)
		}
	})
}
