package queuetest

import (
	"slices"
	"time"

	"github.com/millrace/millrace/queue"
)

var peekTests = []test{
	{"PeekHidesNothingAndCountsNothing", func(e *env) {
		e.create()
		sent := e.enqueue("x", nil)
		for range 3 {
			seen := e.peek(queue.MaxBatch)
			if len(seen) != 1 {
				e.Fatalf("peek shows %d messages", len(seen))
			}
			m := seen[0]
			if m.ID != sent.ID || m.Text != "x" || m.DequeueCount != 0 || !m.Inserted.Equal(sent.Inserted) || !m.Expires.Equal(sent.Expires) {
				e.Errorf("peek shows %+v of %+v", m, sent)
			}
			if m.Receipt != "" || !m.Until.IsZero() {
				e.Errorf("a peeked message has a lease: %#v", m.Lease)
			}
		}
		if m := e.one(long); m.DequeueCount != 1 {
			e.Errorf("after three peeks the first delivery has the count %d", m.DequeueCount)
		}
	}},
	{"PeekShowsOnlyVisibleMessages", func(e *env) {
		e.create()
		e.enqueue("leased", nil)
		leased := e.one(long)
		e.enqueue("delayed", &queue.EnqueueOptions{Delay: long})
		e.enqueue("visible", nil)
		if got := texts(e.peek(queue.MaxBatch)); !slices.Equal(got, []string{"visible"}) {
			e.Errorf("peek shows %q", got)
		}
		_, err := e.q.Update(e.ctx, leased.Lease, "released", 0)
		e.ok(err)
		seen := e.peek(queue.MaxBatch)
		if got := texts(seen); !slices.Equal(got, []string{"released", "visible"}) {
			e.Errorf("after the release peek shows %q", got)
		}
		for _, m := range seen {
			if m.Text == "released" && m.DequeueCount != 1 {
				e.Errorf("peek shows a message that was delivered once with the count %d", m.DequeueCount)
			}
		}
	}},
	{"PeekedMessageCannotBeSettled", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		m := e.peek(1)[0]
		e.is(e.q.Delete(e.ctx, m.Lease), queue.ErrInvalid, "delete of a peeked message")
		_, err := e.q.Update(e.ctx, m.Lease, "y", time.Second)
		e.is(err, queue.ErrInvalid, "update of a peeked message")
	}},
	{"PeekTakesNoMoreThanAskedFor", func(e *env) {
		e.create()
		for range 3 {
			e.enqueue("x", nil)
		}
		if n := len(e.peek(2)); n != 2 {
			e.Errorf("peek of 2 shows %d of 3", n)
		}
	}},
}
