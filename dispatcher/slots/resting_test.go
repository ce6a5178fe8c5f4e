package slots_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/listener"
)

// A member that is paused while it wants more slots does not count as one that wants some: the others would all
// be ahead of their shares for ever, and have any share.
func TestAPausedMemberDoesNotDistortTheShares(t *testing.T) {
	bubble(t, &slots.SharedOptions{Slots: 4}, func(b *bundle) {
		five := b.worker("five", &slots.MemberOptions{Weight: 5}, time.Second)
		three := b.worker("three", &slots.MemberOptions{Weight: 3}, time.Second)
		paused := b.worker("paused", &slots.MemberOptions{Weight: 4}, time.Second)
		var pause atomic.Bool
		paused.options.Observer.Polled = func(listener.Poll) { // before its loop asks again
			if pause.Load() {
				paused.run.Pause()
			}
		}
		for _, w := range []*worker{five, three, paused} {
			w.spread = true
			w.put(1500).start()
		}
		advance(20 * time.Second)
		pause.Store(true)
		advance(20 * time.Second)
		if n := b.held("paused"); n != 0 {
			t.Fatalf("got %d slots of the paused member, want none", n)
		}
		held := averages(200*time.Second, five, three)
		t.Logf("held on average: %.2f", held)
		if ratio := held[0] / held[1]; ratio < 5.0/3*0.93 || ratio > 5.0/3*1.07 {
			t.Errorf("got %.2f slots over time, want a ratio of 5 to 3", held)
		}
		for _, w := range []*worker{five, three, paused} {
			w.end()
		}
	})
}
