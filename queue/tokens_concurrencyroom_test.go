package queue_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/limits"
	"github.com/millrace/millrace/queue/metered"
)

// A process that stops gives its tokens back at once when its handlers have returned, and starts none meanwhile.
func TestAStopGivesTheTokensBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 4, PerToken: 1, Seed: 1}
		b.limit(c)
		l, stop := b.open(c, b.tokens)
		b.put(4)
		q := l.Wrap(b.jobs)
		var fetched []queue.Message
		for len(fetched) < 4 {
			batch, err := q.Dequeue(t.Context(), 4, 10*time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			fetched = append(fetched, batch...)
			time.Sleep(100 * time.Millisecond)
		}
		delivery := func(i int) dispatcher.Delivery {
			return dispatcher.Delivery{Queue: q.Name(), ID: fetched[i].ID, DequeueCount: 1}
		}
		_ = slots.OfFleet(l.Begin, l.End)(t.Context(), delivery(0), func(ctx context.Context) error {
			var stopped sync.WaitGroup
			stopped.Go(stop)
			time.Sleep(5 * time.Minute)
			if ctx.Err() != nil || b.visible() != 3 {
				t.Errorf("while one handler runs %d tokens are visible, want 3; its context: %v", b.visible(), ctx.Err())
			}
			err := slots.OfFleet(l.Begin, l.End)(ctx, delivery(1), func(context.Context) error {
				t.Error("a handler starts after the stop")
				return nil
			})
			if r := dispatcher.ResultOf(err); r.Outcome != dispatcher.Snoozed {
				t.Errorf("got result %+v, want a snooze", r)
			}
			if _, err := q.Dequeue(ctx, 1, time.Minute); !errors.Is(err, queue.ErrLimited) {
				t.Errorf("a dequeue after the stop: got error %v, want a limit", err)
			}
			return nil
		})
		stop()
		if n := b.visible(); n != 4 {
			t.Errorf("after the stop %d tokens are visible, want 4", n)
		}
	})
}

// A handler that does not end does not keep Run from returning for ever.
func TestAHandlerThatIsStuckDoesNotHoldUpTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 1, Seed: 1}
		b.limit(c)
		l, stop := b.open(c, b.tokens)
		ctx, cancel := context.WithCancel(t.Context())
		b.put(1)
		q := l.Wrap(b.jobs)
		batch, err := q.Dequeue(ctx, 1, time.Hour)
		if err != nil || len(batch) != 1 {
			t.Fatalf("got %d messages, error %v", len(batch), err)
		}
		_ = slots.OfFleet(l.Begin, l.End)(ctx, dispatcher.Delivery{Queue: q.Name(), ID: batch[0].ID, DequeueCount: 1}, func(context.Context) error {
			cancel()
			stop() // returns while the handler runs
			return nil
		})
	})
}

// What a listener settles without calling a handler leaves its room; so does what it forgets, when the lease ends.
func TestWhatNeverStartsLeavesItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 1, Seed: 1}
		b.limit(c)
		l, _ := b.open(c, b.tokens)
		b.put(5)
		q := l.Wrap(b.jobs)
		fetch := func() queue.Message {
			t.Helper()
			for range 200 {
				batch, err := q.Dequeue(t.Context(), 32, 30*time.Second)
				if len(batch) == 1 {
					return batch[0]
				}
				if !errors.Is(err, queue.ErrLimited) {
					t.Fatalf("got %d messages, error %v", len(batch), err)
				}
				time.Sleep(time.Second)
			}
			t.Fatal("there is no room for ever")
			return queue.Message{}
		}
		full := func() {
			t.Helper()
			if batch, err := q.Dequeue(t.Context(), 1, time.Minute); !errors.Is(err, queue.ErrLimited) {
				t.Fatalf("got %d messages, error %v; want a limit", len(batch), err)
			}
		}
		because := func(c metered.Cause) context.Context { return metered.WithCause(t.Context(), c) }
		m := fetch()
		full()
		if _, err := q.Update(because(metered.CauseGiveBack), m.Lease, m.Text, time.Hour); err != nil {
			t.Fatal(err)
		}
		m = fetch()
		if err := q.Delete(because(metered.CausePoison), m.Lease); err != nil {
			t.Fatal(err)
		}
		m = fetch()
		for range 5 { // renewed, it keeps its room
			time.Sleep(20 * time.Second)
			var err error
			if m.Lease, err = q.Update(because(metered.CauseRenew), m.Lease, m.Text, 30*time.Second); err != nil {
				t.Fatal(err)
			}
			full()
		}
		begin := time.Now()
		fetch()
		if took := time.Since(begin); took < 30*time.Second || took > 40*time.Second {
			t.Errorf("what was forgotten left its room after %v, want 30 s", took)
		}
	})
}

// Mistakes in the use are errors that say what to do.
func TestConcurrencyMistakesAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		for want, c := range map[string]limits.Concurrency{
			"Concurrency.Jobs is 0":     {},
			"it must be 1 to Jobs":      {Jobs: 3, PerToken: 4},
			"Concurrency.PerToken is -": {Jobs: 3, PerToken: -1},
			"raise Concurrency":         {Jobs: 1e7, PerToken: 1},
		} {
			if _, err := c.Open(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: got error %v, want one with %q", c, err, want)
			}
		}
		c := limits.Concurrency{Jobs: 200, PerToken: 100, Seed: 1}
		b.limit(c)
		r := limits.Rate{Jobs: 100, Window: time.Minute}
		if err := r.Init(t.Context(), b.tokens); err == nil || !strings.Contains(err.Error(), "200 jobs at once, 100 a token") {
			t.Errorf("a rate with these tokens: got error %v", err)
		}
		l, err := c.Open(t.Context(), b.tokens)
		if err != nil {
			t.Fatal(err)
		}
		q := l.Wrap(b.jobs)
		if _, err := q.Dequeue(t.Context(), 1, time.Minute); !errors.Is(err, queue.ErrLimited) {
			t.Errorf("just before Run: got error %v, want a limit", err)
		}
		time.Sleep(10 * time.Second)
		if _, err := q.Dequeue(t.Context(), 1, time.Minute); err == nil || !strings.Contains(err.Error(), "Run was not called") {
			t.Errorf("long before Run: got error %v", err)
		}
		keep(t, l)
		synctest.Wait()
		b.put(150)
		said := 0
		for range 20 {
			batch, err := q.Dequeue(t.Context(), 32, time.Minute)
			if err != nil && strings.Contains(err.Error(), "Interceptors of the listener") {
				said++
			}
			for _, m := range batch {
				if err := q.Delete(metered.WithCause(t.Context(), metered.CauseDelete), m.Lease); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		}
		if said != 1 {
			t.Errorf("it was said %d times that the interceptor is missing, want once", said)
		}
		if err := l.Run(t.Context()); err == nil {
			t.Error("a second Run has no error")
		}
	})
}

// Tokens that somebody has deleted are missed, and not for ever waited for; a missing queue of tokens is not taken
// for a missing queue of jobs.
func TestVanishedTokensOfAConcurrencyAreNoticed(t *testing.T) {
	for _, dropped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := tokensSetup(t)
			c := limits.Concurrency{Jobs: 10, Seed: 1}
			b.limit(c)
			l, _ := b.open(c, b.tokens)
			vanish := b.tokens.Clear
			if dropped {
				vanish = b.tokens.Drop
			}
			if err := vanish(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.put(1)
			q := l.Wrap(b.jobs)
			for begin := time.Now(); time.Since(begin) < 10*time.Minute; time.Sleep(time.Second) {
				_, err := q.Dequeue(t.Context(), 1, time.Minute)
				if err == nil || errors.Is(err, queue.ErrQueueMissing) {
					t.Fatalf("got error %v", err)
				}
				if !errors.Is(err, queue.ErrLimited) {
					return
				}
			}
			t.Error("nobody has noticed for ten minutes")
		})
	}
}

// A queue of tokens that fails is not asked at each dequeue.
func TestAFailingQueueOfTokensIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 10, Seed: 1}
		b.limit(c)
		m := new(metered.Meter)
		f := must(faultqueue.New(b.tokens, &faultqueue.Options{Faults: map[faultqueue.Op]faultqueue.Rates{faultqueue.Dequeue: {Throttled: 1}}}))
		l, _ := b.open(c, m.Wrap(f))
		q := l.Wrap(b.jobs)
		b.put(1)
		failed := 0
		for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
			if _, err := q.Dequeue(t.Context(), 1, time.Minute); errors.Is(err, queue.ErrThrottled) {
				failed++
			}
		}
		if n := m.Counts().Total().Requests; failed == 0 || n > 12 {
			t.Errorf("in 10 s %d dequeues failed and %d requests were sent, want about 10", failed, n)
		}
	})
}

// Dequeues that are under way together do not fetch more than there is room for.
func TestDequeuesUnderWayUseRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 8, PerToken: 8, Seed: 1}
		b.limit(c)
		l, _ := b.open(c, b.tokens)
		b.put(40)
		slow := must(faultqueue.New(b.jobs, &faultqueue.Options{UsualLatency: faultqueue.Range{Min: time.Second, Max: time.Second}}))
		m := new(metered.Meter)
		q := l.Wrap(m.Wrap(slow))
		var all sync.WaitGroup
		var mu sync.Mutex
		got := 0
		for range 4 {
			all.Go(func() {
				batch, err := q.Dequeue(t.Context(), 5, 10*time.Minute)
				if err != nil && !errors.Is(err, queue.ErrLimited) {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				got += len(batch)
			})
			synctest.Wait()
		}
		all.Wait()
		if n := m.Counts().Total().Requests; got != 8 || n != 2 {
			t.Errorf("got %d messages by %d requests, want 8 by 2: %v", got, n, m.Counts())
		}
	})
}

// While tokens can be had a process keeps what it needs: nobody waits for it, and giving it back would hold up its jobs.
func TestNoTokenGoesBackWhileOthersCanBeHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 10, PerToken: 2, Seed: 1}
		b.limit(c)
		l, _ := b.open(c, b.tokens)
		q := l.Wrap(b.jobs)
		got := 0
		for range 300 {
			b.put(1)
			batch, err := q.Dequeue(t.Context(), 1, time.Minute)
			if err != nil {
				t.Fatalf("after %d jobs: %v", got, err)
			}
			time.Sleep(time.Second)
			for _, m := range batch {
				got++
				if err := q.Delete(t.Context(), m.Lease); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(1500 * time.Millisecond)
		}
		if got != 300 {
			t.Errorf("got %d jobs, want 300", got)
		}
	})
}
