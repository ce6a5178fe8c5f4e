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
			e.Errorf("lease after an update: got the end %v, want at least %v after %v", l.Until, long-time.Second, m.Inserted)
		}
		e.none("while leased")
		_, err = e.q.Update(e.ctx, l, "after", 0)
		e.ok(err)
		if again := e.one(long); again.Text != "after" || again.ID != m.ID || again.DequeueCount != 2 {
			e.Errorf("dequeue after two updates: got %q as delivery %d, want \"after\" as 2", again.Text, again.DequeueCount)
		}
	}},
	{"VisibilityZeroReleasesAtOnce", func(e *env) {
		e.create()
		e.enqueue("x", nil)
		m := e.one(long)
		_, err := e.q.Update(e.ctx, m.Lease, m.Text, 0)
		e.ok(err)
		if batch := e.dequeue(1, long); len(batch) != 1 || batch[0].ID != m.ID {
			e.Errorf("dequeue right after the release: got %+v, want the message", batch)
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
		// It does not count from the end of the old lease, so an update can also shorten a lease.
		e.create()
		e.enqueue("x", nil)
		m := e.one(long)
		_, err := e.q.Update(e.ctx, m.Lease, m.Text, 1500*time.Millisecond)
		e.ok(err)
		if e.exactly(1900 * time.Millisecond) {
			e.none("1.9 s into a visibility of 1.5 s, which is 2 s on the wire,")
			e.exactly(100 * time.Millisecond)
			if batch := e.dequeue(1, long); len(batch) != 1 {
				e.Errorf("2 s into a visibility of 1.5 s: got %d messages, want 1", len(batch))
			}
			return
		}
		e.one(long)
	}},
	{"UpdateWithEmptyTextErases", func(e *env) {
		// The empty text is a text like any other. To keep the text, an update must send it again.
		e.create()
		e.enqueue("x", nil)
		m := e.one(long)
		_, err := e.q.Update(e.ctx, m.Lease, "", 0)
		e.ok(err)
		if m := e.one(long); m.Text != "" {
			e.Errorf("text: got %q, want it empty", m.Text)
		}
	}},
}
