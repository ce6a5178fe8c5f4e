package listener

import (
	"context"
	"sync/atomic"
	"testing"
	"time"
)

// Where renewals are so slow that the next one is due when the last one returns, a save comes before
// that next one. Else it would be a matter of luck when it is sent.
func TestASaveComesBeforeTheNextSlowRenewal(t *testing.T) {
	bubble(t, func(b *bundle) {
		const messages, save = 16, 48 * time.Second // during the third renewal of each
		b.put(messages)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "update" {
				if time.Since(b.begin) < 20*time.Second {
					time.Sleep(10 * time.Second) // the first renewal: its lease still holds
				} else {
					time.Sleep(12 * time.Second)
				}
			}
			return act()
		}
		var saved atomic.Int32
		o := fixed(30 * time.Second)
		o.Concurrency = messages
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			time.Sleep(save)
			if err := m.Save(ctx, m.Body); err != nil {
				t.Errorf("Save: got %v, want no error", err)
			}
			if took := time.Since(b.begin) - save; took > 21*time.Second {
				t.Errorf("Save: took %v; want what is left of one renewal, and 12 s", took)
			}
			saved.Add(1)
			return nil
		}, o)
		b.run(l)
		advance(5 * time.Minute)
		b.mustFinish()
		if got := saved.Load(); got != messages {
			t.Errorf("got %d saves, want %d", got, messages)
		}
	})
}
