package listener

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/wakeup"
)

// L-39: what docs/cost.md says of messages that come one by one. An event costs at most two dequeues. Polls
// cost more while messages are rare, and less when some come between two polls.
func TestWhatMessagesCostThatComeOneByOne(t *testing.T) {
	if testing.Short() {
		t.Skip("handles thousands of messages")
	}
	for _, c := range []struct {
		gap           time.Duration
		polled, woken [2]float64 // dequeues for a message: at least and at most
	}{
		{time.Second, [2]float64{2.5, 4.5}, [2]float64{1.9, 2}},
		{100 * time.Millisecond, [2]float64{0.7, 1.3}, [2]float64{1.9, 2}},
		{10 * time.Millisecond, [2]float64{0.15, 0.4}, [2]float64{1.9, 2}},
	} {
		if got := dequeuesForOne(t, c.gap, false); got < c.polled[0] || got > c.polled[1] {
			t.Errorf("a message every %v, polled: got %.2f dequeues for each, want %v", c.gap, got, c.polled)
		}
		if got := dequeuesForOne(t, c.gap, true); got < c.woken[0] || got > c.woken[1] {
			t.Errorf("a message every %v, woken: got %.2f dequeues for each, want %v", c.gap, got, c.woken)
		}
	}
}

// dequeuesForOne returns how many dequeues a message costs, of those that come for half a minute. A dequeue takes
// 4 ms and a handler 20.
func dequeuesForOne(t *testing.T, gap time.Duration, woken bool) (each float64) {
	t.Helper()
	bubble(t, func(b *bundle) {
		b.queue.intercept = func(op string, act func() error) error {
			if op == "dequeue" {
				time.Sleep(4 * time.Millisecond)
			}
			return act()
		}
		bus, o := new(wakeup.Bus), options()
		if o.Seed = 1; woken {
			o.Wakeups, o.SafetyPoll = bus, noSafety
		}
		b.run(New(b.queue, func(context.Context, *Message[job]) error {
			time.Sleep(20 * time.Millisecond)
			return nil
		}, o))
		advance(time.Minute)
		before, n := b.dequeues(), 0
		for end := time.Now().Add(30 * time.Second); time.Now().Before(end); n++ {
			b.put(1)
			b.publish(bus)
			time.Sleep(gap)
		}
		advance(time.Second)
		each = float64(b.dequeues()-before) / float64(n)
		b.Logf("a message every %v, woken: %v: %.2f dequeues for each", gap, woken, each)
		b.mustFinish()
	})
	return each
}
