package queuetest

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
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
			e.ok(errorOf(e.q.Update(e.ctx, m.Lease, m.Text, 0)))
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
			e.ok(errorOf(e.q.Update(e.ctx, m.Lease, m.Text, 0)))
		}
		left := texts(e.take(2, long))
		if slices.Contains(left, gone.Text) {
			e.Errorf("messages after the delete of %q: got %q, want the other two", gone.Text, left)
		}
	}},
}

// receiptTests use receipts that are expired, superseded, of another message or unknown. What they
// expect is documented by the service and implemented by Azurite.
var receiptTests = []test{
	{"ExpiredLeaseStillDeletesUntilRedelivery", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		m := e.one(time.Second)
		e.until("it is visible again", func() bool { return len(e.peek(1)) == 1 })
		e.ok(e.q.Delete(e.ctx, m.Lease))
		e.none("after the delete")
	}},
	{"ExpiredLeaseStillUpdatesUntilRedelivery", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		m := e.one(time.Second)
		e.until("it is visible again", func() bool { return len(e.peek(1)) == 1 })
		l, err := e.q.Update(e.ctx, m.Lease, "y", long)
		e.ok(err)
		e.none("after the update hid it")
		e.ok(e.q.Delete(e.ctx, l))
	}},
	{"RedeliveryInvalidatesTheFirstReceipt", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		first := e.one(time.Second)
		second := e.one(long)
		e.is(e.q.Delete(e.ctx, first.Lease), queue.ErrReceiptMismatch, "delete with the first receipt")
		l, err := e.q.Update(e.ctx, first.Lease, "stolen", 0)
		e.is(err, queue.ErrReceiptMismatch, "update with the first receipt")
		if l != (queue.Lease{}) {
			e.Errorf("lease of a failed update: got %+v, want zero", l)
		}
		e.none("after the refused update")
		e.ok(e.q.Delete(e.ctx, second.Lease))
	}},
	{"UpdateSupersedesTheReceipt", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		old := e.one(long)
		renewed, err := e.q.Update(e.ctx, old.Lease, old.Text, long)
		e.ok(err)
		if renewed.ID != old.ID || renewed.Receipt == old.Receipt || renewed.Receipt == "" {
			e.Errorf("renewed lease: got %#v, want id %s and a new receipt", renewed, old.ID)
		}
		e.is(e.q.Delete(e.ctx, old.Lease), queue.ErrReceiptMismatch, "delete with the superseded receipt")
		e.is(errorOf(e.q.Update(e.ctx, old.Lease, old.Text, long)), queue.ErrReceiptMismatch, "update with the superseded receipt")
		e.ok(e.q.Delete(e.ctx, renewed))
	}},
	{"DeletedIsGone", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		m := e.one(long)
		e.ok(e.q.Delete(e.ctx, m.Lease))
		e.is(e.q.Delete(e.ctx, m.Lease), queue.ErrMessageGone, "delete twice")
		e.is(errorOf(e.q.Update(e.ctx, m.Lease, "x", 0)), queue.ErrMessageGone, "update after the delete")
		e.none("after the delete")
	}},
	{"ExpiredIsGone", func(e *env) {
		e.create()
		m := e.enqueue("x", &queue.EnqueueOptions{TTL: time.Second})
		e.until("it has expired", func() bool { return len(e.peek(1)) == 0 })
		e.is(e.q.Delete(e.ctx, m.Lease), queue.ErrMessageGone, "delete after expiry")
		e.is(errorOf(e.q.Update(e.ctx, m.Lease, "x", 0)), queue.ErrMessageGone, "update after expiry")
	}},
	{"ReceiptOfTheEnqueue", func(e *env) {
		e.create()
		m := e.enqueue("x", nil)
		l, err := e.q.Update(e.ctx, m.Lease, "y", 0)
		e.ok(err)
		e.ok(e.q.Delete(e.ctx, l))
		e.none("after the producer deleted it")

		m = e.enqueue("z", nil)
		taken := e.one(long)
		e.is(e.q.Delete(e.ctx, m.Lease), queue.ErrReceiptMismatch, "the producer's delete after a dequeue")
		e.ok(e.q.Delete(e.ctx, taken.Lease))
	}},
	{"ForeignReceipt", func(e *env) {
		e.create()
		e.enqueue("a", nil)
		one := e.one(long)
		e.enqueue("b", nil)
		other := e.one(long)
		if one.Receipt == other.Receipt {
			e.Fatalf("receipts of two messages: got %q twice, want two", one.Receipt)
		}
		mixed := queue.Lease{ID: one.ID, Receipt: other.Receipt}
		e.is(e.q.Delete(e.ctx, mixed), queue.ErrReceiptMismatch, "delete with another message's receipt")
		e.is(errorOf(e.q.Update(e.ctx, mixed, "x", 0)), queue.ErrReceiptMismatch, "update with another message's receipt")
		e.ok(e.q.Delete(e.ctx, one.Lease))
		e.ok(e.q.Delete(e.ctx, other.Lease))
	}},
	{"UnknownMessage", func(e *env) {
		e.create()
		m := e.enqueue("x", nil)
		unknown := queue.Lease{ID: "00000000-0000-4000-8000-000000000000", Receipt: m.Receipt}
		e.is(e.q.Delete(e.ctx, unknown), queue.ErrMessageGone, "delete of an unknown id")
		e.is(errorOf(e.q.Update(e.ctx, unknown, "x", 0)), queue.ErrMessageGone, "update of an unknown id")
	}},
	{"IdIsOpaque", func(e *env) {
		// No id may address anything but a message: if it were joined to the path without escaping,
		// messages/.. would be the queue.
		e.create()
		m := e.enqueue("x", nil)
		for _, id := range []queue.ID{".", "..", "../messages", "a/b", "a?b=c", "a b", "%2e%2e", "#", "ä"} {
			l := queue.Lease{ID: id, Receipt: m.Receipt}
			if err := e.q.Delete(e.ctx, l); err == nil {
				e.Errorf("delete of a message %q: got no error, want one", id)
			} else {
				e.written(err)
			}
			if _, err := e.q.Update(e.ctx, l, "y", 0); err == nil {
				e.Errorf("update of a message %q: got no error, want one", id)
			}
		}
		if got := e.one(long); got.ID != m.ID || got.Text != "x" {
			e.Errorf("the only message: got %+v, want it unchanged", got)
		}
	}},
}

var concurrencyTests = []test{
	{"NoMessageTwiceWhileLeased", func(e *env) {
		const producers, consumers, messages = 8, 16, 200
		e.create()
		var all sync.WaitGroup
		for p := range producers {
			all.Go(func() {
				for i := range messages / producers {
					if _, err := e.q.Enqueue(e.ctx, strconv.Itoa(p*messages/producers+i), nil); err != nil {
						e.Error(err)
					}
				}
			})
		}
		all.Wait()
		var mu sync.Mutex
		taken := make(map[queue.ID]queue.Message)
		for range consumers {
			all.Go(func() {
				for {
					batch, err := e.q.Dequeue(e.ctx, 5, long)
					if err != nil {
						e.Error(err)
						return
					}
					if len(batch) == 0 {
						return
					}
					for _, m := range batch {
						mu.Lock()
						if _, twice := taken[m.ID]; twice || m.DequeueCount != 1 {
							e.Errorf("message %q: got delivery %d, delivered before %v; want one delivery", m.Text, m.DequeueCount, twice)
						}
						taken[m.ID] = m
						mu.Unlock()
						if err := e.q.Delete(e.ctx, m.Lease); err != nil {
							e.Error(err)
						}
					}
				}
			})
		}
		all.Wait()
		if len(taken) != messages {
			e.Errorf("messages delivered: got %d, want %d", len(taken), messages)
		}
		e.depth(0, "after all were deleted")
	}},
	{"OneOfManyDeletesWins", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		m := e.one(long)
		won := e.race(func() error { return e.q.Delete(e.ctx, m.Lease) })
		if won != 1 {
			e.Errorf("successful deletes of one message: got %d, want 1", won)
		}
		e.depth(0, "after the race")
	}},
	{"OneOfManyUpdatesWins", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		m := e.one(long)
		won := e.race(func() error { _, err := e.q.Update(e.ctx, m.Lease, "y", long); return err })
		if won != 1 {
			e.Errorf("successful updates with one receipt: got %d, want 1", won)
		}
	}},
}

// race runs an operation eight times concurrently and returns how many succeeded. The others must
// have lost the lease.
func (e *env) race(do func() error) int {
	var won atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if err := do(); err == nil {
				won.Add(1)
			} else if !errors.Is(err, queue.ErrLeaseLost) {
				e.Errorf("loser of a race: got %v, want ErrLeaseLost", err)
			}
		})
	}
	all.Wait()
	return int(won.Load())
}
