package listener

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/wakeup"
)

// L-39: what docs/cost.md says of messages that come one by one. Alone, a message costs two dequeues, or one if the
// source sees the queue. Of a trickle it never costs more than polls do.
func TestWhatMessagesCostThatComeOneByOne(t *testing.T) {
	if testing.Short() {
		t.Skip("handles thousands of messages")
	}
	for _, gap := range []time.Duration{10 * time.Second, time.Second, 100 * time.Millisecond, 50 * time.Millisecond, 20 * time.Millisecond, 10 * time.Millisecond} {
		polled := dequeuesForOne(t, gap, "polls")
		for way, alone := range map[string]float64{"bus": 2, "engine": 1} {
			if got := dequeuesForOne(t, gap, way); got > min(polled, alone) {
				t.Errorf("a message every %v, %s: got %.2f dequeues for each, want at most %v, and %.2f as by polls", gap, way, got, alone, polled)
			}
		}
	}
}

// dequeuesForOne returns how many dequeues a message costs, of those that come for half a minute, or ten of them. A
// dequeue takes 4 ms and a handler 20.
func dequeuesForOne(t *testing.T, gap time.Duration, way string) (each float64) {
	t.Helper()
	bubble(t, func(b *bundle) {
		b.queue.intercept = func(op string, act func() error) error {
			if op == "dequeue" {
				time.Sleep(4 * time.Millisecond)
			}
			return act()
		}
		bus, o := new(wakeup.Bus), options()
		switch o.Seed, o.SafetyPoll = 1, noSafety; way {
		case "bus":
			o.Wakeups = bus
		case "engine":
			o.Wakeups = b.engine.Wakeups()
		}
		b.run(New(b.queue, func(context.Context, *Message[job]) error {
			time.Sleep(20 * time.Millisecond)
			return nil
		}, o))
		advance(time.Minute)
		before, n := b.dequeues(), 0
		for end := time.Now().Add(max(30*time.Second, 10*gap)); time.Now().Before(end); n++ {
			b.put(1)
			b.publish(bus)
			time.Sleep(gap)
		}
		advance(time.Second)
		each = float64(b.dequeues()-before) / float64(n)
		b.Logf("a message every %v, %s: %.2f dequeues for each", gap, way, each)
		b.mustFinish()
	})
	return each
}
