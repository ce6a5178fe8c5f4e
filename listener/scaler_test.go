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
		o.QueueWorkDetected = func(scaling.Load) int { return 1 }
		l := New(b.queue, func(context.Context, *Message[job]) error { return nil }, o)
		b.run(l)
		advance(20 * time.Second)
		if st := l.State(); st.Succeeded != messages {
			t.Errorf("Succeeded: got %d, want %d", st.Succeeded, messages)
		}
		if reads := len(b.queue.sent("properties")); reads < 15 || reads > 17 {
			t.Errorf("reads of the depth: got %d, want 16 or one more or less", reads)
		}
		b.mustFinish()
	})
}
