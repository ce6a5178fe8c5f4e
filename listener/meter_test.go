package listener

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Requests to a poison queue that the policy names are billed like all others.
func TestRequestsToAnOwnPoisonQueueAreCounted(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		o := options()
		o.Poison.Queue = b.queue.Sibling("-bad")
		l := New(b.queue, func(context.Context, *Message[job]) error { return Poison(errors.New("no address")) }, o)
		b.run(l)
		advance(10 * time.Second)
		b.mustFinish()
		if n := len(b.queue.sent("enqueue")); n == 0 {
			t.Error("copies sent: got none, want some")
		}
		if got, want := l.State().Requests, int64(len(b.queue.log)); got != want {
			t.Errorf("Requests: got %d, want %d", got, want)
		}
	})
}
