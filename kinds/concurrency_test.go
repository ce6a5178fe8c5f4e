package kinds_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/kinds"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
)

// atOnce counts the handlers that run.
type atOnce struct{ now, most, done atomic.Int64 }

// handler returns a handler that takes so long.
func (a *atOnce) handler(takes time.Duration) listener.Handler[email] {
	return func(ctx context.Context, _ *listener.Message[email]) error {
		n := a.now.Add(1)
		defer a.now.Add(-1)
		for most := a.most.Load(); n > most && !a.most.CompareAndSwap(most, n); most = a.most.Load() {
		}
		if !waiting.For(takes, ctx.Done()) {
			return ctx.Err()
		}
		a.done.Add(1)
		return nil
	}
}

// No more handlers of a kind run at once than its Concurrency. A flood of it holds up no other kind, keeps
// the kind busy, and costs its jobs few requests and no attempt.
func TestAKindKeepsToItsConcurrency(t *testing.T) {
	for _, c := range []struct {
		places, slots int
		takes         time.Duration
		jobs          int
	}{
		{2, 64, time.Second, 300},
		{8, 64, 100 * time.Millisecond, 1000},
		{3, 8, time.Second, 300},
		{100, 64, 10 * time.Second, 300}, // more than slots
	} {
		t.Run(fmt.Sprintf("%d of %d, %v", c.places, c.slots, c.takes), func(t *testing.T) {
			bubble(t, func(b *bundle) {
				b.options.Concurrency = c.slots
				var of atOnce
				b.sendMany(c.jobs)
				var mu sync.Mutex
				var waits []time.Duration
				l := b.kindsOf(emails.Handle(of.handler(c.takes), &kinds.Options{Concurrency: c.places}),
					orders.Handle(func(_ context.Context, m *listener.Message[order]) error {
						mu.Lock()
						defer mu.Unlock()
						waits = append(waits, time.Since(b.begin)-time.Duration(m.Body.Total)*time.Second)
						return nil
					}, nil))
				for i := range 60 {
					time.AfterFunc(time.Duration(i)*time.Second, func() { send(b, orders, order{i}) })
				}
				// Hidden messages come up at whole seconds: as many as may run or wait then.
				perSecond := min(float64(c.places)/c.takes.Seconds(), float64(min(c.places, c.slots)+c.slots/4))
				over := time.Duration(float64(c.jobs) / perSecond * float64(time.Second))
				st := b.run(over*3/2+2*time.Minute, l)
				slices.Sort(waits)
				t.Logf("the others waited %v at most; %d give-backs, %d starts", waits[len(waits)-1], st.ByCause["giveback"], st.ByCause["start"])
				if of.most.Load() != int64(min(c.places, c.slots)) || of.done.Load() != int64(c.jobs) || b.depth() != 0 {
					t.Errorf("got %d handlers at once and %d jobs done, %d left; want %d and %d", of.most.Load(), of.done.Load(), b.depth(), c.places, c.jobs)
				}
				if len(waits) != 60 || c.places < c.slots && waits[len(waits)-1] > 3*time.Second {
					t.Errorf("got %d jobs of the other kind, which waited up to %v; want 60, and at most 3 s", len(waits), waits[len(waits)-1])
				}
				if most := 3 * int64(c.jobs); st.ByCause["giveback"] > most || st.Outcomes[listener.Retried]+st.Outcomes[listener.Poisoned] > 0 {
					t.Errorf("got %d give-backs, %d retries, and %d poison messages; want at most %d and none", st.ByCause["giveback"], st.Outcomes[listener.Retried], st.Outcomes[listener.Poisoned], most)
				}
			})
		})
	}
}

// A place is free again when its handler has ended in whatever way.
func TestAPlaceOfAKindIsFreeAfterEveryEnd(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.options.RetryDelay = func(int, error) time.Duration { return 0 }
		b.options.NoSourceLimits = true
		ended := map[string]bool{} // by job; only one handler runs
		l := b.kindsOf(emails.Handle(func(ctx context.Context, m *listener.Message[email]) error {
			if ended[m.Body.To] {
				return nil
			}
			ended[m.Body.To] = true
			switch m.Body.To {
			case "0":
				panic("no")
			case "1":
				runtime.Goexit()
			case "2":
				<-ctx.Done() // until its time-out
				return ctx.Err()
			case "3":
				return listener.Snooze(time.Second)
			}
			return errFails
		}, &kinds.Options{Concurrency: 1, Timeout: time.Second}))
		b.sendMany(5)
		st := b.run(2*time.Minute, l)
		if st.Outcomes[listener.Deleted] != 5 || b.depth() != 0 {
			t.Errorf("got %d jobs done and %d left, want 5 and none", st.Outcomes[listener.Deleted], b.depth())
		}
	})
}

// A job that waits for a place when the worker stops is given back, with its attempts. One that would expire
// before it came again waits in its slot.
func TestAJobThatWaitsForItsKind(t *testing.T) {
	t.Run("stop", func(t *testing.T) {
		bubble(t, func(b *bundle) {
			b.options.Grace = time.Second
			var of atOnce
			l := b.kindsOf(emails.Handle(of.handler(4*time.Second), &kinds.Options{Concurrency: 1}))
			b.sendMany(2)
			b.run(2*time.Second, l)
			again := b.kindsOf(emails.Handle(handler[email](b, nil), nil))
			b.run(time.Minute, again)
			if got := b.handled["email"]; len(got) != 2 || got[0].attempt != 1 || got[1].attempt != 1 || of.most.Load() != 1 {
				t.Errorf("got %+v after a stop with %d at once, want both in their first attempt, and 1", got, of.most.Load())
			}
		})
	})
	t.Run("expiry", func(t *testing.T) {
		bubble(t, func(b *bundle) {
			var of atOnce
			p := emails.Producer(b.queue, nil)
			for i := range 2 {
				if _, err := p.Send(b.Context(), email{fmt.Sprint(i)}, &producer.SendOptions{TTL: 30 * time.Second}); err != nil {
					t.Fatal(err)
				}
			}
			st := b.run(time.Minute, b.kindsOf(emails.Handle(of.handler(12*time.Second), &kinds.Options{Concurrency: 1})))
			if of.done.Load() != 2 || of.most.Load() != 1 || st.ByCause["giveback"] != 0 {
				t.Errorf("got %d jobs done, %d at once, and %d give-backs; want 2, 1, and none", of.done.Load(), of.most.Load(), st.ByCause["giveback"])
			}
		})
	})
	t.Run("no room for the record", func(t *testing.T) {
		bubble(t, func(b *bundle) {
			for range 2 {
				if _, err := b.queue.Enqueue(b.Context(), filled("millrace/2?kd=email\n{}"), nil); err != nil {
					t.Fatal(err)
				}
			}
			var of atOnce
			st := b.run(10*time.Minute, b.kindsOf(emails.Handle(of.handler(2*time.Minute), &kinds.Options{Concurrency: 1})))
			if of.done.Load() != 2 || of.most.Load() != 1 || st.ByCause["giveback"] != 0 {
				t.Errorf("got %d jobs done, %d at once, and %d give-backs; want 2, 1, and none", of.done.Load(), of.most.Load(), st.ByCause["giveback"])
			}
		})
	})
	t.Run("a batch that cannot fill", func(t *testing.T) {
		bubble(t, func(b *bundle) {
			b.sendMany(3)
			together := listener.Batch(func(_ context.Context, ms []*listener.Message[email]) []error { return nil }, 3, time.Second)
			st := b.run(time.Minute, b.kindsOf(emails.Handle(together, &kinds.Options{Concurrency: 2})))
			var setup *listener.SetupError
			if st.Outcomes[listener.Deleted] != 3 || !slices.ContainsFunc(b.reported, func(err error) bool { return errors.As(err, &setup) }) {
				t.Errorf("got %d jobs done and the errors %v, want 3 and a SetupError", st.Outcomes[listener.Deleted], b.reported)
			}
		})
	})
	t.Run("no record", func(t *testing.T) {
		bubble(t, func(b *bundle) {
			for range 2 {
				if _, err := b.queue.Enqueue(b.Context(), `{"Total":1}`, nil); err != nil {
					t.Fatal(err)
				}
			}
			sees := handler[order](b, nil)
			b.run(10*time.Minute, b.kindsOf(unnamed.Handle(func(ctx context.Context, m *listener.Message[order]) error {
				waiting.For(2*time.Minute, ctx.Done())
				return sees(ctx, m)
			}, &kinds.Options{Concurrency: 1})))
			if got := b.handled[""]; len(got) != 2 || got[1].dequeues != 1 || b.depth() != 0 {
				t.Errorf("got %+v and %d messages left, want both handled after one dequeue: the lease is renewed", got, b.depth())
			}
		})
	})
}
