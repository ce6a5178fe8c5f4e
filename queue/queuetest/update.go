package queuetest

import (
	"time"
)

var updateTests = []test{
	{"UpdateReplacesTheText", func(e *env) {
		e.create()
		e.enqueue("before", nil)
		m := e.one(long)
		l, err := e.q.Update(e.ctx, m.Lease, "between", long)
		e.ok(err)
		if l.Until.Sub(m.Inserted) < long-time.Second {
			e.Errorf("hidden until %v, inserted at %v", l.Until, m.Inserted)
		}
		e.none("while leased")
		_, err = e.q.Update(e.ctx, l, "after", 0)
		e.ok(err)
		if again := e.one(long); again.Text != "after" || again.ID != m.ID || again.DequeueCount != 2 {
			e.Errorf("after two updates got %q as delivery %d", again.Text, again.DequeueCount)
		}
	}},
	{"VisibilityZeroIsAtOnce", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		m := e.one(long)
		_, err := e.q.Update(e.ctx, m.Lease, m.Text, 0)
		e.ok(err)
		if batch := e.dequeue(1, long); len(batch) != 1 || batch[0].ID != m.ID {
			e.Errorf("right after the release dequeue gave %+v", batch)
		}
	}},
	{"UpdateExtendsTheLease", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		m := e.one(3 * time.Second)
		e.exactly(2 * time.Second)
		l, err := e.q.Update(e.ctx, m.Lease, m.Text, long)
		e.ok(err)
		e.after(4 * time.Second)
		e.none("after the first lease would have ended")
		e.ok(e.q.Delete(e.ctx, l))
	}},
	{"UpdateCountsFromNow", func(e *env) {
		// Not from the end of the lease it replaces: it can shorten one too.
		e.create()
		e.enqueue("x", nil)
		m := e.one(long)
		_, err := e.q.Update(e.ctx, m.Lease, m.Text, 1500*time.Millisecond)
		e.ok(err)
		if e.exactly(1900 * time.Millisecond) {
			e.none("1.9 s into a visibility of 1.5 s, which is 2 s on the wire,")
			e.exactly(100 * time.Millisecond)
			if batch := e.dequeue(1, long); len(batch) != 1 {
				e.Error("2 s into a visibility of 1.5 s the message is still hidden")
			}
			return
		}
		e.one(long)
	}},
	{"UpdateWithEmptyTextErases", func(e *env) {
		// It is a text like any other; to keep the body, resend it.
		e.create()
		e.enqueue("x", nil)
		m := e.one(long)
		_, err := e.q.Update(e.ctx, m.Lease, "", 0)
		e.ok(err)
		if m := e.one(long); m.Text != "" {
			e.Errorf("text is %q", m.Text)
		}
	}},
}
