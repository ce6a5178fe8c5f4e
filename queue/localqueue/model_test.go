package localqueue

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// modelMessage is a message of the naive model.
type modelMessage struct {
	id       queue.ID
	receipt  queue.Receipt
	text     string
	count    int64
	sequence int
	inserted time.Time
	due      time.Time
	expires  time.Time // zero for never
}

// model is a queue as a slice: every operation scans all messages.
type model struct {
	messages []*modelMessage
	sequence int
}

// live removes the expired messages and returns the visible ones, in order.
func (m *model) live() []*modelMessage {
	now := time.Now()
	m.messages = slices.DeleteFunc(m.messages, func(x *modelMessage) bool {
		return !x.expires.IsZero() && !x.expires.After(now)
	})
	var visible []*modelMessage
	for _, x := range m.messages {
		if !x.due.After(now) {
			visible = append(visible, x)
		}
	}
	slices.SortFunc(visible, func(a, b *modelMessage) int {
		return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.sequence, b.sequence))
	})
	return visible
}

// check returns the message of a lease, or the error that the service documents.
func (m *model) check(l queue.Lease) (*modelMessage, error) {
	m.live()
	for _, x := range m.messages {
		if x.id == l.ID {
			if x.receipt != l.Receipt {
				return nil, queue.ErrReceiptMismatch
			}
			return x, nil
		}
	}
	return nil, queue.ErrMessageGone
}

func (m *modelMessage) shown() queue.Message {
	expires := forever
	if !m.expires.IsZero() {
		expires = m.expires.Truncate(time.Second).UTC()
	}
	return queue.Message{
		Lease:        queue.Lease{ID: m.id, Receipt: m.receipt, Until: m.due.Truncate(time.Second).UTC()},
		Text:         m.text,
		DequeueCount: m.count,
		Inserted:     m.inserted.Truncate(time.Second).UTC(),
		Expires:      expires,
	}
}

// checkInBubbles runs each check of a property in its own bubble: rapid limits its time by the
// clock, which in a single bubble would soon be years ahead. rapid's panic that ends a run is raised
// again on rapid's goroutine.
func checkInBubbles(t *testing.T, property func(*rapid.T)) {
	rapid.Check(t, func(r *rapid.T) {
		var thrown any
		synctest.Test(t, func(*testing.T) {
			defer func() { thrown = recover() }()
			property(r)
		})
		if thrown != nil {
			panic(thrown)
		}
	})
}

// TestAgainstModel runs random operations on the engine and the model, on simulated time,
// and compares them.
func TestAgainstModel(t *testing.T) {
	checkInBubbles(t, func(t *rapid.T) {
		ctx := context.Background()
		q := must(New(nil)).queue(queue.Name{Account: "a", Queue: "model"})
		if err := q.Create(ctx, nil); err != nil {
			t.Fatal(err)
		}
		m := &model{}
		leases := []queue.Lease{{ID: "no-such-id", Receipt: "no-such-receipt"}}
		text := rapid.StringMatching(`[a-z]{0,3}`)
		visibility := rapid.OneOf(
			rapid.Just(time.Duration(0)),
			rapid.Custom(func(t *rapid.T) time.Duration {
				return time.Duration(rapid.Int64Range(int64(time.Second), int64(20*time.Second)).Draw(t, "nanoseconds"))
			}),
			rapid.Just(queue.MaxVisibility))
		ceil := func(d time.Duration) time.Duration { return time.Duration(driver.Seconds(d)) * time.Second }
		same := func(got queue.Message, want queue.Message) {
			t.Helper()
			if got != want {
				t.Fatalf("got %#v, want %#v", got, want)
			}
		}
		update := func(t *rapid.T, change func(l queue.Lease, v time.Duration) (queue.Lease, error), text func(string) string) {
			l := rapid.SampledFrom(leases).Draw(t, "lease")
			v := visibility.Draw(t, "visibility")
			x, want := m.check(l)
			if want == nil && !x.expires.IsZero() && time.Now().Add(ceil(v)).After(x.expires) {
				want = queue.ErrInvalid
			}
			got, err := change(l, v)
			if !errors.Is(err, want) {
				t.Fatalf("update: got %v, want %v", err, want)
			}
			if want != nil {
				return
			}
			x.due, x.text, x.receipt = time.Now().Add(ceil(v)), text(x.text), got.Receipt
			if got != x.shown().Lease || slices.Contains(leases, got) {
				t.Fatalf("lease: got %#v, want %#v", got, x.shown().Lease)
			}
			leases = append(leases, got)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				p, err := q.Properties(ctx)
				m.live()
				if err != nil || p.Depth != int64(len(m.messages)) {
					t.Fatalf("depth: got %d, %v; want %d", p.Depth, err, len(m.messages))
				}
			},
			"time passes": func(t *rapid.T) {
				time.Sleep(visibility.Draw(t, "pause") / 2)
			},
			"enqueue": func(t *rapid.T) {
				o := &queue.EnqueueOptions{Delay: visibility.Draw(t, "delay"), TTL: visibility.Draw(t, "ttl")}
				if driver.CheckEnqueue(o) != nil {
					o = nil
				}
				m.sequence++
				x := &modelMessage{text: text.Draw(t, "text"), sequence: m.sequence, inserted: time.Now(), due: time.Now()}
				if o != nil {
					x.due = x.due.Add(ceil(o.Delay))
					if o.TTL != 0 {
						x.expires = time.Now().Add(ceil(o.TTL))
					}
				}
				got, err := q.Enqueue(ctx, x.text, o)
				if err != nil {
					t.Fatal(err)
				}
				x.id, x.receipt = got.ID, got.Receipt
				same(got, x.shown())
				m.messages = append(m.messages, x)
				leases = append(leases, got.Lease)
			},
			"dequeue": func(t *rapid.T) {
				n := rapid.IntRange(1, 4).Draw(t, "n")
				v := max(visibility.Draw(t, "visibility"), time.Second)
				want := m.live()
				want = want[:min(n, len(want))]
				got, err := q.Dequeue(ctx, n, v)
				if err != nil || len(got) != len(want) {
					t.Fatalf("dequeued: got %d, %v; want %d", len(got), err, len(want))
				}
				for i, x := range want {
					x.count++
					x.due, x.receipt = time.Now().Add(ceil(v)), got[i].Receipt
					same(got[i], x.shown())
					leases = append(leases, got[i].Lease)
				}
			},
			"peek": func(t *rapid.T) {
				n := rapid.IntRange(1, 32).Draw(t, "n")
				want := m.live()
				want = want[:min(n, len(want))]
				got, err := q.Peek(ctx, n)
				if err != nil || len(got) != len(want) {
					t.Fatalf("peeked: got %d, %v; want %d", len(got), err, len(want))
				}
				for i, x := range want {
					w := x.shown()
					w.Lease = queue.Lease{ID: x.id}
					same(got[i], w)
				}
			},
			"update": func(t *rapid.T) {
				s := text.Draw(t, "text")
				update(t, func(l queue.Lease, v time.Duration) (queue.Lease, error) { return q.Update(ctx, l, s, v) },
					func(string) string { return s })
			},
			"extend": func(t *rapid.T) {
				update(t, func(l queue.Lease, v time.Duration) (queue.Lease, error) { return q.Extend(ctx, l, v) },
					func(old string) string { return old })
			},
			"delete": func(t *rapid.T) {
				l := rapid.SampledFrom(leases).Draw(t, "lease")
				x, want := m.check(l)
				if err := q.Delete(ctx, l); !errors.Is(err, want) {
					t.Fatalf("delete: got %v, want %v", err, want)
				}
				m.messages = slices.DeleteFunc(m.messages, func(y *modelMessage) bool { return y == x })
			},
			"clear": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "one in ten") == 0 {
					if err := q.Clear(ctx); err != nil {
						t.Fatal(err)
					}
					m.messages = nil
				}
			},
		})
	})
}
