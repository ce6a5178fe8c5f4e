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
				e.Fatalf("peek: got %d messages, want 1", len(seen))
			}
			m := seen[0]
			if m.ID != sent.ID || m.Text != "x" || m.DequeueCount != 0 || !m.Inserted.Equal(sent.Inserted) || !m.Expires.Equal(sent.Expires) {
				e.Errorf("peek: got %+v, want, with dequeue count 0, %+v", m, sent)
			}
			if m.Receipt != "" || !m.Until.IsZero() {
				e.Errorf("lease of a peeked message: got %#v, want only the id", m.Lease)
			}
		}
		if m := e.one(long); m.DequeueCount != 1 {
			e.Errorf("dequeue count after three peeks and a dequeue: got %d, want 1", m.DequeueCount)
		}
	}},
	{"PeekShowsOnlyVisibleMessages", func(e *env) {
		e.create()
		e.enqueue("leased", nil)
		leased := e.one(long)
		e.enqueue("delayed", &queue.EnqueueOptions{Delay: long})
		e.enqueue("visible", nil)
		if got := texts(e.peek(queue.MaxBatch)); !slices.Equal(got, []string{"visible"}) {
			e.Errorf("peek: got %q, want only \"visible\"", got)
		}
		_, err := e.q.Update(e.ctx, leased.Lease, "released", 0)
		e.ok(err)
		seen := e.peek(queue.MaxBatch)
		if got := texts(seen); !slices.Equal(got, []string{"released", "visible"}) {
			e.Errorf("peek after the release: got %q, want \"released\" and \"visible\"", got)
		}
		for _, m := range seen {
			if m.Text == "released" && m.DequeueCount != 1 {
				e.Errorf("peeked dequeue count after one delivery: got %d, want 1", m.DequeueCount)
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
			e.Errorf("peek of 2 in a queue of 3: got %d messages, want 2", n)
		}
	}},
}
