package queuetest

import (
	"errors"
	"strings"

	"github.com/millrace/millrace/queue"
)

var errorTests = []test{{"ErrorsSayWhatWhereAndWhy", func(e *env) { // B-05
	missing := errorOf(e.q.Enqueue(e.ctx, "x", nil))
	e.create()
	m := e.enqueue("x", nil)
	taken := e.one(long)
	stale := errorOf(e.q.Update(e.ctx, m.Lease, "x", 0))
	e.ok(e.q.Delete(e.ctx, taken.Lease))
	gone := e.q.Delete(e.ctx, taken.Lease)
	conflict := e.q.Create(e.ctx, map[string]string{"a": "1"})

	for _, c := range []struct {
		err    error
		op     string
		id     queue.ID
		status int
		code   string
	}{
		{missing, "enqueue", "", 404, "QueueNotFound"},
		{stale, "update", m.ID, 400, "PopReceiptMismatch"},
		{gone, "delete", m.ID, 404, "MessageNotFound"},
		{conflict, "create", "", 409, "QueueAlreadyExists"},
		{errorOf(e.q.Peek(e.ctx, 0)), "peek", "", 0, ""},
		{errorOf(e.q.Dequeue(e.ctx, 0, 0)), "dequeue", "", 0, ""},
		{e.q.SetMetadata(e.ctx, map[string]string{"": "1"}), "set metadata", "", 0, ""},
		{e.q.Delete(e.ctx, queue.Lease{ID: m.ID}), "delete", m.ID, 0, ""},
	} {
		known := (*queue.Error)(nil)
		if !errors.As(c.err, &known) {
			e.Errorf("%s: error: got %v, want a *queue.Error", c.op, c.err)
			continue
		}
		e.written(c.err)
		if known.Op != c.op || known.Queue != e.q.Name() || known.Message != c.id || known.Kind == nil {
			e.Errorf("%s: error: got %q on %v of %q, kind %v; want %q on %v of %q, any kind", c.op, known.Op, known.Queue, known.Message, known.Kind, c.op, e.q.Name(), c.id)
		}
		for _, receipt := range []queue.Receipt{m.Receipt, taken.Receipt} {
			if strings.Contains(c.err.Error(), string(receipt)) {
				e.Errorf("%s: error: got %v, want it without the receipt", c.op, c.err)
			}
		}
		if e.h.HTTP && (known.Status != c.status || known.Code != c.code || (known.RequestID == "") != (c.status == 0)) {
			e.Errorf("%s: error: got status %d, code %q and request id %q; want %d and %q", c.op, known.Status, known.Code, known.RequestID, c.status, c.code)
		}
	}
}}}
