package queuetest

import (
	"time"

	"github.com/millrace/millrace/queue"
)

var traceTests = []test{{"WorkedTrace", func(e *env) {
	e.create()
	e.enqueue("m1", nil) // P1
	e.enqueue("m2", nil) // P2

	const visibility = 30 * time.Second
	held := long // for C1's message: on a real backend it must not become visible too early
	if e.h.Bubble {
		held = visibility
	}
	crashed := e.take(1, held)[0] // C1
	other := e.take(1, long)[0]   // C2
	if got := texts([]queue.Message{crashed, other}); got[0] != "m1" || got[1] != "m2" {
		e.Fatalf("messages of the consumers: got %q, want m1 and m2", got)
	}
	e.ok(e.q.Delete(e.ctx, other.Lease))
	e.none("while C1 holds its message")

	// C1 crashes. Its message becomes visible when the visibility timeout ends, not before.
	if e.exactly(visibility - time.Millisecond) {
		e.none("just before the visibility ends")
		e.exactly(time.Millisecond)
	} else {
		// To save 30 real seconds, C1 shortens its lease before it crashes.
		short, err := e.q.Update(e.ctx, crashed.Lease, crashed.Text, time.Second)
		e.ok(err)
		crashed.Lease = short
	}
	again := e.one(long) // C2
	if again.ID != crashed.ID || again.Text != crashed.Text || again.DequeueCount != 2 {
		e.Errorf("C2 got %q as delivery %d, want C1's %q as delivery 2", again.Text, again.DequeueCount, crashed.Text)
	}
	e.is(e.q.Delete(e.ctx, crashed.Lease), queue.ErrLeaseLost, "C1's delete after the redelivery")
	e.ok(e.q.Delete(e.ctx, again.Lease))
	e.none("after both are deleted")
	p, err := e.q.Properties(e.ctx)
	e.ok(err)
	if p.Depth != 0 {
		e.Errorf("depth at the end: got %d, want 0", p.Depth)
	}
}}}
