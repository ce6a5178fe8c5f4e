package queuetest

import (
	"time"

	"github.com/millrace/millrace/queue"
)

var lifeTests = []test{
	{"ForeverIsTheDefault", func(e *env) {
		e.create()
		for _, o := range []*queue.EnqueueOptions{nil, {}, {TTL: queue.Forever}, {Delay: time.Second}} {
			if m := e.enqueue("x", o); m.Expires.UTC().Year() != 9999 {
				e.Errorf("expiry with %+v: got %v, want the year 9999", o, m.Expires)
			}
		}
		if e.exactly(10 * 365 * 24 * time.Hour) {
			e.take(4, long)
		}
	}},
	{"ExpiredIsNeitherSeenNorTaken", func(e *env) {
		e.create()
		e.enqueue("short", &queue.EnqueueOptions{TTL: 2 * time.Second})
		e.enqueue("long", &queue.EnqueueOptions{TTL: long})
		if e.exactly(1900 * time.Millisecond) {
			if n := len(e.peek(queue.MaxBatch)); n != 2 {
				e.Errorf("messages 0.1 s before the first expires: got %d, want 2", n)
			}
			e.exactly(100 * time.Millisecond)
		}
		e.until("the first has expired", func() bool { return len(e.peek(queue.MaxBatch)) == 1 })
		if m := e.one(long); m.Text != "long" {
			e.Errorf("dequeue: got %q, want \"long\"", m.Text)
		}
		e.none("after the other")
	}},
	{"LifeIsCountedInWholeSeconds", func(e *env) {
		e.create()
		for ttl, want := range map[time.Duration]time.Duration{
			time.Second:             time.Second,
			1500 * time.Millisecond: 2 * time.Second,
			30 * 24 * time.Hour:     30 * 24 * time.Hour, // over seven days since 2017-07-29
		} {
			if m := e.enqueue("x", &queue.EnqueueOptions{TTL: ttl}); m.Expires.Sub(m.Inserted) != want {
				e.Errorf("message with TTL %v: got a life from %v to %v, want %v", ttl, m.Inserted, m.Expires, want)
			}
		}
	}},
	{"ALeaseDoesNotOutliveItsMessage", func(e *env) {
		// A dequeue may hide a message beyond its expiry, but does not extend its life.
		e.create()
		e.enqueue("x", &queue.EnqueueOptions{TTL: 3 * time.Second})
		batch := e.dequeue(1, long)
		e.after(3 * time.Second)
		if len(batch) == 0 { // it expired first: a real machine may be slow
			return
		}
		e.is(e.q.Delete(e.ctx, batch[0].Lease), queue.ErrMessageGone, "delete after expiry while leased")
		e.none("after expiry")
	}},
	{"UpdateKeepsTheExpiry", func(e *env) {
		e.create()
		sent := e.enqueue("x", &queue.EnqueueOptions{TTL: 2 * long})
		m := e.one(long)
		_, err := e.q.Update(e.ctx, m.Lease, "y", 0)
		e.ok(err)
		if got := e.one(long); !got.Expires.Equal(sent.Expires) || !got.Inserted.Equal(sent.Inserted) {
			e.Errorf("life after an update: got %v to %v, want unchanged %v to %v", got.Inserted, got.Expires, sent.Inserted, sent.Expires)
		}
	}},
	{"UpdatePastTheExpiry", func(e *env) {
		e.create()
		e.enqueue("x", &queue.EnqueueOptions{TTL: long})
		m := e.one(time.Minute)
		l, err := e.q.Update(e.ctx, m.Lease, "y", 2*long)
		if why := e.h.Quirks.UpdatePastExpiry; why != "" && err == nil {
			e.Logf("allowed: %s", why)
			e.ok(e.q.Delete(e.ctx, l))
			return
		}
		e.is(err, queue.ErrInvalid, "update that hides beyond the expiry")
		e.ok(e.q.Delete(e.ctx, m.Lease)) // the refused update kept the receipt valid
	}},
}
