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
				e.Errorf("dequeue of %d gave %d messages", n, len(batch))
			}
		}
	}},
	{"DequeueCountIsOneAtTheFirst", func(e *env) {
		e.create()
		if m := e.enqueue("x", nil); m.DequeueCount != 0 {
			e.Errorf("count is %d before any delivery", m.DequeueCount)
		}
		for want := int64(1); want <= 4; want++ {
			m := e.one(long)
			if m.DequeueCount != want {
				e.Errorf("delivery %d has the count %d", want, m.DequeueCount)
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
			e.Errorf("dequeued %+v, sent %+v", m, sent)
		}
		if !m.Inserted.Equal(sent.Inserted) || !m.Expires.Equal(sent.Expires) || m.Inserted.IsZero() {
			e.Errorf("times are %v and %v, at the enqueue they were %v and %v", m.Inserted, m.Expires, sent.Inserted, sent.Expires)
		}
		if hidden := m.Until.Sub(m.Inserted); hidden < time.Minute-time.Second || m.Until.IsZero() {
			e.Errorf("until is %v, %v after the insertion", m.Until, hidden)
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
			e.Errorf("redelivered as %+v after %+v", again, first)
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
				e.Fatal("2 s into a visibility of 1.5 s the message is still hidden")
			}
			return
		}
		// The server says until when, in whole seconds of its own.
		if m.Until.Sub(m.Inserted) < time.Second {
			e.Errorf("hidden from about %v until %v", m.Inserted, m.Until)
		}
		e.one(long)
	}},
	{"DelayHidesFromTheStart", func(e *env) {
		e.create()
		later := e.enqueue("later", &queue.EnqueueOptions{Delay: long})
		e.none("while delayed")
		if seen := e.peek(queue.MaxBatch); len(seen) != 0 {
			e.Errorf("peek shows a delayed message: %+v", seen)
		}
		if p, err := e.q.Properties(e.ctx); err != nil || p.Depth < 1 {
			e.Errorf("depth is %d with a delayed message (%v)", p.Depth, err)
		}
		e.ok(e.q.Delete(e.ctx, later.Lease))

		e.enqueue("soon", &queue.EnqueueOptions{Delay: 1500 * time.Millisecond})
		if e.exactly(1900 * time.Millisecond) {
			e.none("1.9 s into a delay of 1.5 s, which is 2 s on the wire,")
			e.exactly(100 * time.Millisecond)
		}
		if m := e.one(long); m.Text != "soon" || m.DequeueCount != 1 {
			e.Errorf("got %q as delivery %d", m.Text, m.DequeueCount)
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
				e.Errorf("got %+v", got)
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
			e.Errorf("peek of 32 gave %d of 40", n)
		}
		first := e.dequeue(queue.MaxBatch, long)
		if len(first) != queue.MaxBatch {
			e.Errorf("dequeue of 32 gave %d of 40", len(first))
		}
		all := append(first, e.take(40-len(first), long)...)
		if got := texts(all); !slices.Equal(got, want) {
			e.Errorf("dequeued %q", got)
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
		// Azurite gives a whole batch one receipt: it opens one message only.
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
			e.Errorf("deleted %q, left are %q", gone.Text, left)
		}
	}},
}
