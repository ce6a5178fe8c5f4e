package queuetest

import (
	"time"

	"github.com/millrace/millrace/queue"
)

var queueTests = []test{
	{"CreateIsIdempotent", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		e.ok(e.q.Create(e.ctx, nil))
		e.ok(e.q.Create(e.ctx, map[string]string{}))
		if m := e.one(long); m.Text != "x" {
			e.Errorf("message after a second create: got %q, want \"x\"", m.Text)
		}
		e.is(e.q.Create(e.ctx, map[string]string{"a": "1"}), queue.ErrQueueExists, "create with other metadata")
		e.metadata(nil, "after a refused create")
	}},
	{"CreateComparesMetadata", func(e *env) {
		e.ok(e.q.Create(e.ctx, map[string]string{"a": "1", "b": "2"}))
		e.ok(e.q.Create(e.ctx, map[string]string{"b": "2", "a": "1"}))
		e.is(e.q.Create(e.ctx, nil), queue.ErrQueueExists, "create with no metadata")
		e.is(e.q.Create(e.ctx, map[string]string{"a": "1"}), queue.ErrQueueExists, "create with fewer metadata")
		e.is(e.q.Create(e.ctx, map[string]string{"a": "1", "b": "3"}), queue.ErrQueueExists, "create with another value")
		e.metadata(map[string]string{"a": "1", "b": "2"}, "after refused creates")
	}},
	{"MissingQueue", func(e *env) {
		e.missing(queue.Lease{ID: "00000000-0000-4000-8000-000000000000", Receipt: "AgAAAAMAAAAAAAAA"})
	}},
	{"DropTakesEverything", func(e *env) {
		e.ok(e.q.Create(e.ctx, map[string]string{"a": "1"}))
		e.enqueue("x", nil)
		m := e.one(long)
		e.enqueue("y", nil)
		e.ok(e.q.Drop(e.ctx))
		e.missing(m.Lease)

		err := e.q.Create(e.ctx, nil)
		if why := e.h.Quirks.RecreateAtOnce; why != "" && err == nil {
			e.Logf("allowed: %s", why)
		} else {
			e.is(err, queue.ErrQueueBeingDeleted, "create right after a drop")
			e.until("the name is free again", func() bool { err = e.q.Create(e.ctx, nil); return err == nil })
		}
		e.none("after the queue was created again")
		e.metadata(nil, "after the queue was created again")
		e.is(e.q.Delete(e.ctx, m.Lease), queue.ErrMessageGone, "delete with a lease from the dropped queue")
	}},
	{"ClearDeletesAllMessages", func(e *env) {
		e.ok(e.q.Create(e.ctx, map[string]string{"a": "1"}))
		e.ok(e.q.Clear(e.ctx)) // of an empty queue
		e.enqueue("leased", nil)
		m := e.one(long)
		e.enqueue("visible", nil)
		e.enqueue("delayed", &queue.EnqueueOptions{Delay: time.Second})
		e.ok(e.q.Clear(e.ctx))
		e.depth(0, "after clear")
		e.none("after clear")
		e.is(e.q.Delete(e.ctx, m.Lease), queue.ErrMessageGone, "delete of a cleared message")
		e.metadata(map[string]string{"a": "1"}, "after clear")
		e.enqueue("new", nil)
		e.after(2 * time.Second)
		if got := texts(e.dequeue(queue.MaxBatch, long)); len(got) != 1 || got[0] != "new" {
			e.Errorf("messages after clear and one enqueue: got %q, want only \"new\"", got)
		}
	}},
}

// missing checks that every operation fails if the queue does not exist.
func (e *env) missing(l queue.Lease) {
	e.Helper()
	_, err := e.q.Enqueue(e.ctx, "x", nil)
	e.is(err, queue.ErrQueueMissing, "enqueue")
	_, err = e.q.Dequeue(e.ctx, 1, time.Second)
	e.is(err, queue.ErrQueueMissing, "dequeue")
	_, err = e.q.Peek(e.ctx, 1)
	e.is(err, queue.ErrQueueMissing, "peek")
	_, err = e.q.Update(e.ctx, l, "x", 0)
	e.is(err, queue.ErrQueueMissing, "update")
	e.is(e.q.Delete(e.ctx, l), queue.ErrQueueMissing, "delete")
	_, err = e.q.Properties(e.ctx)
	e.is(err, queue.ErrQueueMissing, "properties")
	e.is(e.q.SetMetadata(e.ctx, map[string]string{"a": "1"}), queue.ErrQueueMissing, "set metadata")
	e.is(e.q.Clear(e.ctx), queue.ErrQueueMissing, "clear")
	e.is(e.q.Drop(e.ctx), queue.ErrQueueMissing, "drop")
}
