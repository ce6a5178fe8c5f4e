package listener

import (
	"context"
	"testing"
	"time"

	"github.com/millrace/millrace/scaling"
)

// While full batches keep coming the depth is read once in 256 messages, not for every batch.
func TestTheDepthIsReadOnceIn256Messages(t *testing.T) {
	bubble(t, func(b *bundle) {
		const messages = 16 * messagesPerDepth
		b.put(messages)
		b.queue.latency = 10 * time.Millisecond
		o := options()
		o.Fetch.QueueWorkDetected = func(scaling.Load) int { return 1 }
		l := New(b.queue, func(context.Context, *Message[job]) error { return nil }, o)
		b.run(l)
		advance(20 * time.Second)
		if st := l.State(); st.Outcomes[Deleted] != messages {
			t.Errorf("Succeeded: got %d, want %d", st.Outcomes[Deleted], messages)
		}
		if reads := len(b.queue.sent("properties")); reads < 15 || reads > 17 {
			t.Errorf("reads of the depth: got %d, want 16 or one more or less", reads)
		}
		b.mustFinish()
	})
}

// The depth is read once at a time, however slow the response.
func TestNoDepthIsReadWhileAnotherReadIsInFlight(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(16 * messagesPerDepth)
		b.queue.latency = 10 * time.Millisecond
		inFlight, most := 0, 0
		b.queue.intercept = func(op string, act func() error) error {
			if op == "properties" {
				inFlight++
				most = max(most, inFlight)
				time.Sleep(time.Minute)
				inFlight--
			}
			return act()
		}
		o := options()
		o.Fetch.QueueWorkDetected = func(scaling.Load) int { return 1 }
		b.run(New(b.queue, func(context.Context, *Message[job]) error { return nil }, o))
		advance(30 * time.Second)
		if most != 1 {
			t.Errorf("reads of the depth in flight: got %d, want 1", most)
		}
		advance(2 * time.Minute)
		b.mustFinish()
	})
}
