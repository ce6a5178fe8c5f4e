package queuetest

import (
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/queue"
)

var visibilityTests = []test{
	{"EmptyQueueReturnsAtOnce", func(e *env) {
		e.create()
		for _, n := range []int{1, queue.MaxBatch} {
			if batch := e.dequeue(n, time.Second); len(batch) != 0 {
				e.Errorf("dequeue of %d: got %d messages, want none", n, len(batch))
			}
		}
	}},
	{"DequeueCountIsOneAtTheFirst", func(e *env) {
		e.create()
		if m := e.enqueue("x", nil); m.DequeueCount != 0 {
			e.Errorf("dequeue count before any delivery: got %d, want 0", m.DequeueCount)
		}
		for want := int64(1); want <= 4; want++ {
			m := e.one(long)
			if m.DequeueCount != want {
				e.Errorf("dequeue count: got %d, want %d", m.DequeueCount, want)
			}
			_, err := e.q.Update(e.ctx, m.Lease, m.Text, 0)
			e.ok(err)
		}
	}},
	{"DequeuedMessageIsWhole", func(e *env) {
		e.create()
		sent := e.enqueue("hello", nil)
		m := e.one(time.Minute)
		if m.ID != sent.ID || m.Text != "hello" || m.Receipt == "" || m.Receipt == sent.Receipt {
			e.Errorf("dequeue: got %+v, want, with another receipt, %+v", m, sent)
		}
		if !m.Inserted.Equal(sent.Inserted) || !m.Expires.Equal(sent.Expires) || m.Inserted.IsZero() {
			e.Errorf("insertion and expiry: got %v and %v, want those of the enqueue, %v and %v", m.Inserted, m.Expires, sent.Inserted, sent.Expires)
		}
		if hidden := m.Until.Sub(m.Inserted); hidden < time.Minute-time.Second || m.Until.IsZero() {
			e.Errorf("end of the lease: got %v, %v after the insertion; want a minute", m.Until, hidden)
		}
	}},
	{"HiddenWhileLeasedThenBack", func(e *env) {
		e.create()
		sent := e.enqueue("x", nil)
		first := e.one(2 * time.Second)
		if e.exactly(0) {
			e.none("at once")
			e.exactly(1900 * time.Millisecond)
			e.none("0.1 s before the visibility ends")
			e.exactly(100 * time.Millisecond)
		}
		again := e.one(long)
		if again.ID != sent.ID || again.DequeueCount != 2 || again.Receipt == first.Receipt {
			e.Errorf("redelivery: got %+v, want delivery 2 with another receipt than %+v", again, first)
		}
		e.none("while leased again")
	}},
	{"FractionsOfASecondAreRoundedUp", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		e.exactly(300 * time.Millisecond) // not on a whole second
		m := e.one(1500 * time.Millisecond)
		if e.exactly(1900 * time.Millisecond) {
			e.none("1.9 s into a visibility of 1.5 s, which is 2 s on the wire,")
			e.exactly(100 * time.Millisecond)
			if batch := e.dequeue(1, long); len(batch) != 1 {
				e.Fatalf("2 s into a visibility of 1.5 s: got %d messages, want 1", len(batch))
			}
			return
		}
		// The server returns the end of the lease in whole seconds of its clock.
		if m.Until.Sub(m.Inserted) < time.Second {
			e.Errorf("end of the lease: got %v, want at least a second after %v", m.Until, m.Inserted)
		}
		e.one(long)
	}},
	{"DelayHidesFromTheStart", func(e *env) {
		e.create()
		later := e.enqueue("later", &queue.EnqueueOptions{Delay: long})
		e.none("while delayed")
		if seen := e.peek(queue.MaxBatch); len(seen) != 0 {
			e.Errorf("peek of a delayed message: got %+v, want none", seen)
		}
		if p, err := e.q.Properties(e.ctx); err != nil || p.Depth < 1 {
			e.Errorf("depth with a delayed message: got %d, %v; want at least 1", p.Depth, err)
		}
		e.ok(e.q.Delete(e.ctx, later.Lease))

		e.enqueue("soon", &queue.EnqueueOptions{Delay: 1500 * time.Millisecond})
		if e.exactly(1900 * time.Millisecond) {
			e.none("1.9 s into a delay of 1.5 s, which is 2 s on the wire,")
			e.exactly(100 * time.Millisecond)
		}
		if m := e.one(long); m.Text != "soon" || m.DequeueCount != 1 {
			e.Errorf("dequeue: got %q as delivery %d, want \"soon\" as 1", m.Text, m.DequeueCount)
		}
	}},
	{"LongestDelay", func(e *env) {
		e.create()
		m := e.enqueue("x", &queue.EnqueueOptions{Delay: queue.MaxVisibility})
		e.none("while delayed")
		if e.exactly(queue.MaxVisibility - time.Second) {
			e.none("a second before the delay ends")
			e.exactly(time.Second)
			if got := e.one(long); got.ID != m.ID {
				e.Errorf("dequeue: got %+v, want message %s", got, m.ID)
			}
		}
	}},
	{"AtMost32AtOnce", func(e *env) {
		e.create()
		var want []string
		for i := range 40 {
			want = append(want, strconv.Itoa(i))
			e.enqueue(want[i], nil)
		}
		slices.Sort(want)
		if n := len(e.peek(queue.MaxBatch)); n != queue.MaxBatch {
			e.Errorf("peek of 32 in a queue of 40: got %d messages, want 32", n)
		}
		first := e.dequeue(queue.MaxBatch, long)
		if len(first) != queue.MaxBatch {
			e.Errorf("dequeue of 32 in a queue of 40: got %d messages, want 32", len(first))
		}
		all := append(first, e.take(40-len(first), long)...)
		if got := texts(all); !slices.Equal(got, want) {
			e.Errorf("texts of all messages: got %q, want %q", got, want)
		}
		e.none("after all 40")
	}},
	{"LongestVisibility", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		e.one(queue.MaxVisibility)
		e.none("while leased for seven days")
		if e.exactly(queue.MaxVisibility - time.Second) {
			e.none("a second before the seven days end")
			e.exactly(time.Second)
			e.one(long)
		}
	}},
	{"OneOfABatchCanBeDeleted", func(e *env) {
		// Azurite gives all messages of a batch the same receipt. It must still be valid for one message
		// only.
		e.create()
		for _, text := range []string{"a", "b", "c"} {
			e.enqueue(text, nil)
		}
		batch := e.take(3, long)
		gone := batch[1]
		e.ok(e.q.Delete(e.ctx, gone.Lease))
		for _, m := range batch {
			if m.ID == gone.ID {
				continue
			}
			_, err := e.q.Update(e.ctx, m.Lease, m.Text, 0)
			e.ok(err)
		}
		left := texts(e.take(2, long))
		if slices.Contains(left, gone.Text) {
			e.Errorf("messages after the delete of %q: got %q, want the other two", gone.Text, left)
		}
	}},
}
