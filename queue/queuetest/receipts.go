package queuetest

import (
	"time"

	"github.com/millrace/millrace/queue"
)

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
		_, err = e.q.Update(e.ctx, old.Lease, old.Text, long)
		e.is(err, queue.ErrReceiptMismatch, "update with the superseded receipt")
		e.ok(e.q.Delete(e.ctx, renewed))
	}},
	{"DeletedIsGone", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		m := e.one(long)
		e.ok(e.q.Delete(e.ctx, m.Lease))
		e.is(e.q.Delete(e.ctx, m.Lease), queue.ErrMessageGone, "delete twice")
		_, err := e.q.Update(e.ctx, m.Lease, "x", 0)
		e.is(err, queue.ErrMessageGone, "update after the delete")
		e.none("after the delete")
	}},
	{"ExpiredIsGone", func(e *env) {
		e.create()
		m := e.enqueue("x", &queue.EnqueueOptions{TTL: time.Second})
		e.until("it has expired", func() bool { return len(e.peek(1)) == 0 })
		e.is(e.q.Delete(e.ctx, m.Lease), queue.ErrMessageGone, "delete after expiry")
		_, err := e.q.Update(e.ctx, m.Lease, "x", 0)
		e.is(err, queue.ErrMessageGone, "update after expiry")
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
		_, err := e.q.Update(e.ctx, mixed, "x", 0)
		e.is(err, queue.ErrReceiptMismatch, "update with another message's receipt")
		e.ok(e.q.Delete(e.ctx, one.Lease))
		e.ok(e.q.Delete(e.ctx, other.Lease))
	}},
	{"UnknownMessage", func(e *env) {
		e.create()
		m := e.enqueue("x", nil)
		unknown := queue.Lease{ID: "00000000-0000-4000-8000-000000000000", Receipt: m.Receipt}
		e.is(e.q.Delete(e.ctx, unknown), queue.ErrMessageGone, "delete of an unknown id")
		_, err := e.q.Update(e.ctx, unknown, "x", 0)
		e.is(err, queue.ErrMessageGone, "update of an unknown id")
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
