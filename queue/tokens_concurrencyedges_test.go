package queue_test

import (
	"context"
	"errors"
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

// fetchOne returns a message, by a dequeue that must find one.
func fetchOne(t *testing.T, q queue.Queue, visibility time.Duration) queue.Message {
	t.Helper()
	batch, err := q.Dequeue(t.Context(), 1, visibility)
	if err != nil || len(batch) != 1 {
		t.Fatalf("got %d messages, error %v; want one", len(batch), err)
	}
	return batch[0]
}

// wantLimited checks that there is no room.
func wantLimited(t *testing.T, q queue.Queue) {
	t.Helper()
	if batch, err := q.Dequeue(context.WithoutCancel(t.Context()), 1, time.Minute); !errors.Is(err, queue.ErrLimited) {
		t.Errorf("got %d messages, error %v; want a limit", len(batch), err)
	}
}

func deliveryOf(q queue.Queue, m queue.Message) dispatcher.Delivery {
	return dispatcher.Delivery{Queue: q.Name(), ID: m.ID, DequeueCount: m.DequeueCount}
}

// wantNoStart checks that no handler starts, and that this is no attempt.
func wantNoStart(t *testing.T, l *limits.ConcurrencyLimit, d dispatcher.Delivery) {
	t.Helper()
	err := slots.OfFleet(l.Begin, l.End)(context.WithoutCancel(t.Context()), d, func(context.Context) error {
		t.Error("a handler starts")
		return nil
	})
	if r := dispatcher.ResultOf(err); r.Outcome != dispatcher.Snoozed {
		t.Errorf("got result %+v, want a snooze", r)
	}
}

// When a token is lost what has not started gives way to what runs, also if it was fetched before.
func TestWhatHasNotStartedGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 2, PerToken: 1, Seed: 1}
		b.limit(c)
		s := &stubborn{Queue: b.tokens, one: true}
		l, _ := b.open(c, s)
		b.put(2)
		q := l.Wrap(b.jobs)
		first, second := fetchOne(t, q, time.Hour), fetchOne(t, q, time.Hour)
		s.fail(queue.ErrReceiptMismatch)
		err := slots.OfFleet(l.Begin, l.End)(t.Context(), deliveryOf(q, second), func(ctx context.Context) error {
			time.Sleep(58 * time.Second)
			wantNoStart(t, l, deliveryOf(q, first))
			return context.Cause(ctx)
		})
		if err != nil {
			t.Errorf("the handler that ran ended with %v", err)
		}
	})
}

// Nothing starts once the tokens are not worth it, at that instant and not only when the keeper has looked.
func TestNothingStartsUnderATokenThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 1, Seed: 1}
		b.limit(c)
		s := &stubborn{Queue: b.tokens}
		l, _ := b.open(c, s)
		b.put(2)
		q := l.Wrap(b.jobs)
		m := fetchOne(t, q, time.Hour)
		s.fail(queue.ErrUnavailable)
		time.Sleep(300 * time.Millisecond)
		wantLimited(t, q) // it has asked for a token, and the keeper looks each second from here
		time.Sleep(44*time.Second + 900*time.Millisecond)
		wantNoStart(t, l, deliveryOf(q, m))
	})
}

// A start for which the message was forgotten finds no room.
func TestAForgottenMessageFindsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 1, Seed: 1}
		b.limit(c)
		l, _ := b.open(c, b.tokens)
		b.put(2)
		q := l.Wrap(b.jobs)
		forgotten := fetchOne(t, q, 30*time.Second)
		time.Sleep(35 * time.Second) // by then the first turn has ended
		fetchOne(t, q, time.Hour)    // perhaps the same message, at its second delivery
		wantNoStart(t, l, deliveryOf(q, forgotten))
	})
}

// No handler starts after the stop, although its token has room.
func TestNothingStartsAfterTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 4, PerToken: 4, Seed: 1}
		b.limit(c)
		l, stop := b.open(c, b.tokens)
		b.put(2)
		q := l.Wrap(b.jobs)
		first, second := fetchOne(t, q, time.Hour), fetchOne(t, q, time.Hour)
		_ = slots.OfFleet(l.Begin, l.End)(t.Context(), deliveryOf(q, first), func(context.Context) error {
			var stopped sync.WaitGroup
			stopped.Go(stop)
			synctest.Wait()
			wantNoStart(t, l, deliveryOf(q, second))
			return nil
		})
		stop()
	})
}

// Messages that arrive when the limit was stopped, or the tokens for them are gone, are given back at once, and a stop waits for them.
func TestMessagesThatArriveTooLateAreGivenBack(t *testing.T) {
	for what, latency := range map[string]time.Duration{"stopped": 15 * time.Second, "lost": 50 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := tokensSetup(t)
			c := limits.Concurrency{Jobs: 1, Seed: 1}
			b.limit(c)
			s := &stubborn{Queue: b.tokens}
			l, stop := b.open(c, s)
			b.put(1)
			slow := must(faultqueue.New(b.jobs, &faultqueue.Options{UsualLatency: faultqueue.Range{Min: latency, Max: latency}}))
			q := l.Wrap(slow)
			var parts sync.WaitGroup
			parts.Go(func() {
				time.Sleep(10 * time.Second)
				if what == "lost" {
					s.fail(queue.ErrUnavailable)
					return
				}
				stop()
				if n := b.visible(); n != 1 {
					t.Errorf("after the stop %d tokens are visible, want 1", n)
				}
			})
			batch, err := q.Dequeue(t.Context(), 1, time.Hour)
			if !errors.Is(err, queue.ErrOutcomeUnknown) || len(batch) != 0 {
				t.Errorf("%s: got %d messages, error %v; want none", what, len(batch), err)
			}
			parts.Wait()
			if found, err := b.jobs.Peek(t.Context(), 1); err != nil || len(found) != 1 {
				t.Errorf("%s: %d messages are visible, error %v; want the one that was given back", what, len(found), err)
			}
		})
	}
}

// A dequeue that waits for a token while the limit is stopped fetches nothing.
func TestADequeueOfAStoppedLimitFetchesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 1, Seed: 1}
		b.limit(c)
		slow := must(faultqueue.New(b.tokens, &faultqueue.Options{UsualLatency: faultqueue.Range{Min: time.Second, Max: time.Second}}))
		l, stop := b.open(c, slow)
		b.put(1)
		m := new(metered.Meter)
		q := l.Wrap(m.Wrap(b.jobs))
		var parts sync.WaitGroup
		parts.Go(func() { wantLimited(t, q) })
		synctest.Wait()
		stop()
		parts.Wait()
		if n := m.Counts().Total().Requests; n != 0 {
			t.Errorf("%d requests for jobs were sent after the stop", n)
		}
	})
}

// Dequeues that want tokens at the same time send one request for them.
func TestOneRequestForTokensAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 4, PerToken: 1, Seed: 1}
		b.limit(c)
		m := new(metered.Meter)
		slow := must(faultqueue.New(b.tokens, &faultqueue.Options{UsualLatency: faultqueue.Range{Min: time.Second, Max: time.Second}}))
		l, _ := b.open(c, m.Wrap(slow))
		b.put(4)
		q := l.Wrap(b.jobs)
		before := m.Counts().Total().Requests
		var parts sync.WaitGroup
		parts.Go(func() { fetchOne(t, q, time.Hour) })
		synctest.Wait()
		for range 3 {
			wantLimited(t, q)
		}
		if n := m.Counts().Total().Requests - before; n > 1 {
			t.Errorf("%d requests for tokens are under way, want 1", n)
		}
		parts.Wait()
		if n := m.Counts().Total().Requests - before; n != 1 {
			t.Errorf("%d requests for tokens were sent, want 1", n)
		}
	})
}

// A handler that still runs has its room, whatever became of its message: it was given up as stuck, or
// somebody has settled it.
func TestAHandlerHasItsRoomWhateverBecomesOfItsMessage(t *testing.T) {
	for _, group := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := tokensSetup(t)
			c := limits.Concurrency{Jobs: 1, Seed: 1}
			b.limit(c)
			l, _ := b.open(c, b.tokens)
			b.put(2)
			q := l.Wrap(b.jobs)
			m := fetchOne(t, q, time.Hour)
			d := deliveryOf(q, m)
			if group {
				d.Items = 3
			}
			_ = slots.OfFleet(l.Begin, l.End)(t.Context(), d, func(ctx context.Context) error {
				if err := q.Delete(metered.WithCause(ctx, metered.CauseDelete), m.Lease); err != nil {
					t.Fatal(err)
				}
				wantLimited(t, q)
				return nil
			})
			fetchOne(t, q, time.Hour)
		})
	}
}

// A renewal by somebody else than a listener, without a cause, keeps the room; what it makes visible does not.
func TestAnUpdateWithoutACauseIsARenewalOrNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 1, Seed: 1}
		b.limit(c)
		l, _ := b.open(c, b.tokens)
		b.put(2)
		q := l.Wrap(b.jobs)
		m := fetchOne(t, q, 30*time.Second)
		lease, err := q.Update(t.Context(), m.Lease, m.Text, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		wantLimited(t, q)
		if _, err := q.Update(t.Context(), lease, m.Text, 0); err != nil {
			t.Fatal(err)
		}
		fetchOne(t, q, time.Hour)
	})
}

// The items of a group do not start when one was told to end, and its room is free when that has returned.
func TestAGroupThatWasToldToEndStartsNoItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 1, Seed: 1}
		b.limit(c)
		s := &stubborn{Queue: b.tokens}
		l, _ := b.open(c, s)
		b.put(2)
		q := l.Wrap(b.jobs)
		m := fetchOne(t, q, time.Hour)
		s.fail(queue.ErrUnavailable)
		item := deliveryOf(q, m)
		item.Items = 2
		err := slots.OfFleet(l.Begin, l.End)(t.Context(), item, func(ctx context.Context) error {
			<-ctx.Done()
			s.fail(nil)
			time.Sleep(5 * time.Second) // the token is renewed: there is room, but not for this
			other := item
			other.Item = 1
			wantNoStart(t, l, other)
			return dispatcher.Snooze(time.Hour)
		})
		if r := dispatcher.ResultOf(err); r.Delay != time.Hour {
			t.Errorf("got result %+v, want what the handler has asked for", r)
		}
		time.Sleep(4 * time.Second) // the token goes back for a turn
		fetchOne(t, q, time.Hour)
	})
}

// A process that has given a token back for others leaves it alone for 2 to 3 s, although it needs it.
func TestAProcessLeavesOthersTimeForItsToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 1, Seed: 1}
		b.limit(c)
		l, _ := b.open(c, b.tokens)
		b.put(2000)
		q := l.Wrap(b.jobs)
		done := make(chan struct{})
		go func() {
			defer close(done)
			for begin := time.Now(); time.Since(begin) < 62*time.Second; {
				batch, err := q.Dequeue(t.Context(), 1, time.Hour)
				if err != nil && !errors.Is(err, queue.ErrLimited) {
					t.Error(err)
					return
				}
				for _, m := range batch {
					_ = slots.OfFleet(l.Begin, l.End)(t.Context(), deliveryOf(q, m), func(context.Context) error {
						time.Sleep(100 * time.Millisecond)
						return nil
					})
				}
				if len(batch) == 0 {
					time.Sleep(100 * time.Millisecond)
				}
			}
		}()
		time.Sleep(time.Second) // by then it has the token
		free := time.Duration(0)
		for range 600 {
			time.Sleep(100 * time.Millisecond)
			free += time.Duration(b.visible()) * 100 * time.Millisecond
		}
		<-done
		if free < 1900*time.Millisecond || free > 3500*time.Millisecond {
			t.Errorf("in 61 s others could have the token for %v, want 2 to 3 s", free)
		}
	})
}
