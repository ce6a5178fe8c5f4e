package queuetest

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/queue"
)

var contextTests = []test{{"EndedContextDoesNothing", func(e *env) { // section 15 of the requirements
	e.create()
	e.enqueue("held", nil)
	held := e.one(long)
	e.enqueue("visible", nil)

	cause := errors.New("shutting down")
	cancelled, cancel := context.WithCancelCause(e.ctx)
	cancel(cause)
	late, cancelLate := context.WithDeadline(e.ctx, time.Now().Add(-time.Second))
	defer cancelLate()
	for ctx, want := range map[context.Context]error{cancelled: context.Canceled, late: context.DeadlineExceeded} {
		for op, do := range map[string]func() error{
			"enqueue":      func() error { _, err := e.q.Enqueue(ctx, "x", nil); return err },
			"dequeue":      func() error { _, err := e.q.Dequeue(ctx, 1, long); return err },
			"peek":         func() error { _, err := e.q.Peek(ctx, 1); return err },
			"update":       func() error { _, err := e.q.Update(ctx, held.Lease, "x", 0); return err },
			"delete":       func() error { return e.q.Delete(ctx, held.Lease) },
			"properties":   func() error { _, err := e.q.Properties(ctx); return err },
			"create":       func() error { return e.q.Create(ctx, nil) },
			"set metadata": func() error { return e.q.SetMetadata(ctx, map[string]string{"a": "1"}) },
			"clear":        func() error { return e.q.Clear(ctx) },
			"drop":         func() error { return e.q.Drop(ctx) },
		} {
			e.is(do(), want, op+" with an ended context")
		}
	}
	e.depth(2, "after calls with ended contexts")
	if got := texts(e.peek(queue.MaxBatch)); len(got) != 1 || got[0] != "visible" {
		e.Errorf("after calls with ended contexts %q are visible", got)
	}
	e.metadata(nil, "after calls with ended contexts")
	e.ok(e.q.Delete(e.ctx, held.Lease))
}}}
