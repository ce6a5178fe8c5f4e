package listener

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
)

// When an item that was stuck has returned, the lease is renewed again, and the other items of its
// delivery are not done in vain.
func TestTheLeaseIsRenewedAgainAfterAStuckItem(t *testing.T) {
	bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
		b.putGroup(120)
		var got items
		var stuck atomic.Int32
		o := fixed(5 * time.Minute)
		o.Timeout = 10 * time.Second
		o.OnError = func(err error) {
			if s := new(StuckError); errors.As(err, &s) {
				stuck.Add(1)
			}
		}
		b.run(New(b.queue, way(got.handler(t, func(_ context.Context, m *Message[job]) error {
			if m.Item%50 == 1 {
				time.Sleep(100 * time.Second) // it heeds nothing
			} else {
				time.Sleep(9 * time.Second)
			}
			return nil
		})), o))
		advance(time.Hour)
		b.mustFinish()
		got.wantCounts(t, slices.Repeat([]int{1}, 120)...)
		if stuck.Load() != 3 {
			t.Errorf("%d stuck items were reported, want 3", stuck.Load())
		}
	})
}

// A group that has lost its slot to another handler begins no further item.
func TestAGroupThatIsGivenUpBeginsNoItem(t *testing.T) {
	bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
		b.putGroup(60)
		var got items
		var givenUp atomic.Bool
		o := fixed(5 * time.Minute)
		o.Timeout, o.Lease.GiveUp = 10*time.Second, true
		o.OnError = func(err error) {
			if s := new(StuckError); errors.As(err, &s) && s.GivenUp {
				givenUp.Store(true)
			}
		}
		b.run(New(b.queue, way(got.handler(t, func(_ context.Context, m *Message[job]) error {
			if m.DequeueCount == 1 && givenUp.Load() {
				t.Errorf("item %d is handled without a slot", m.Item)
			}
			if m.Item == 1 {
				time.Sleep(100 * time.Second)
			} else {
				time.Sleep(9 * time.Second)
			}
			return nil
		})), o))
		advance(time.Hour)
		b.mustFinish()
		got.wantCounts(t, slices.Repeat([]int{1}, 60)...)
		if !givenUp.Load() || b.depth(b.queue) != 0 {
			t.Errorf("given up: %v; %d messages are left", givenUp.Load(), b.depth(b.queue))
		}
	})
}

// An item counts as stuck by its own time, not by that of another that was late before it.
func TestAnItemIsStuckByItsOwnTime(t *testing.T) {
	for took, want := range map[time.Duration]int32{55 * time.Second: 0, 75 * time.Second: 1} {
		bubble(t, func(b *bundle) {
			b.putGroup(6)
			var stuck atomic.Int32
			o := options()
			o.Timeout = 10 * time.Second
			o.OnError = func(err error) {
				if s := new(StuckError); errors.As(err, &s) {
					stuck.Add(1)
				}
			}
			b.run(New(b.queue, EachItem(func(_ context.Context, m *Message[job]) error {
				switch m.Item {
				case 0:
					time.Sleep(60 * time.Second)
				case 5: // overdue before the first has returned
					time.Sleep(took)
				default:
					time.Sleep(9 * time.Second)
				}
				return nil
			}, 2), o))
			advance(time.Hour)
			b.mustFinish()
			if stuck.Load() != want {
				t.Errorf("late by %v: reported %d times, want %d", took, stuck.Load(), want)
			}
		})
	}
}

// A stop excuses what it interrupts, and not what had timed out before. A job alone and an item of a
// group are alike in both.
func TestAStopDoesNotExcuseATimeout(t *testing.T) {
	for _, timeout := range []time.Duration{10 * time.Second, time.Hour} {
		for _, group := range []bool{false, true} {
			bothWays(t, func(b *bundle, way func(Handler[job]) Handler[job]) {
				if group {
					b.putGroup(1)
				} else {
					b.put(1)
				}
				o := options()
				o.Timeout, o.Grace = timeout, -1
				l := New(b.queue, way(func(context.Context, *Message[job]) error {
					time.Sleep(25 * time.Second)
					return errors.New("broken")
				}), o)
				b.run(l)
				advance(20 * time.Second)
				b.mustFinish()
				s := l.State()
				if late := timeout < time.Minute; (s.Outcomes[Retried] == 1) != late || (s.Outcomes[Returned] == 1) == late {
					t.Errorf("time-out %v, in a group: %v: got %+v", timeout, group, s)
				}
			})
		}
	}
}

// Items that cannot be decoded say nothing about what the handlers need.
func TestUndecodableItemsDoNotHideAnOutage(t *testing.T) {
	bubble(t, func(b *bundle) {
		g := envelope.Group{[]byte(`{"N":0}`), []byte(`{"N":"one"}`)}
		text, _ := envelope.Seal(envelope.Head{ID: "group", Items: len(g)}, g.Encode(), codec.Envelope)
		for range 40 {
			b.putText(text)
		}
		o := options()
		o.Concurrency = 1
		o.RetryDelay = func(int, error) time.Duration { return time.Hour }
		l := New(b.queue, func(context.Context, *Message[job]) error { return errors.New("no") }, o)
		b.run(l)
		advance(2 * time.Minute)
		if s := l.State(); !slices.ContainsFunc(s.Failing, func(one FailingSource) bool { return one.Source == "all jobs" }) {
			t.Errorf("got %+v, want an outage", s)
		}
		b.mustFinish()
	})
}
