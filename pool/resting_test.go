package pool_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/pool"
	"github.com/millrace/millrace/queue"
)

// A dequeue that a limit holds back says nothing about the queue: the next one asks for as many messages as
// that would have, and not for the few of a member whose queue is empty. Meanwhile others have the slots.
func TestALimitDoesNotMakeAMemberStartSmall(t *testing.T) {
	bubble(t, &pool.Options{Slots: 64}, func(b *bundle) {
		limited := b.worker("limited", nil, time.Millisecond).put(5000).start()
		other := b.worker("other", nil, time.Hour).start()
		advance(time.Second)
		limited.queue.fail(&queue.LimitedError{After: 5 * time.Second})
		advance(100 * time.Millisecond)
		if n := b.held("limited"); n != 0 {
			t.Errorf("got %d slots that a limited member holds, want none", n)
		}
		asked := limited.queue.dequeues.Load()
		for limited.queue.dequeues.Load() == asked {
			advance(time.Millisecond)
		}
		if n := limited.queue.asked.Load(); n < 16 {
			t.Errorf("got a dequeue of %d messages after the limit, want as many as before, about 30", n)
		}
		limited.halt()
		other.end()
	})
}

// A member that is paused while it wants more slots does not count as one that wants some: the others would all
// be ahead of their shares for ever, and have any share.
func TestAPausedMemberDoesNotDistortTheShares(t *testing.T) {
	bubble(t, &pool.Options{Slots: 4}, func(b *bundle) {
		five := b.worker("five", &pool.MemberOptions{Weight: 5}, time.Second)
		three := b.worker("three", &pool.MemberOptions{Weight: 3}, time.Second)
		paused := b.worker("paused", &pool.MemberOptions{Weight: 4}, time.Second)
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
