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

// stubborn is a queue of tokens whose updates fail from a time on.
type stubborn struct {
	queue.Queue
	one bool // only those of one token
	mu  sync.Mutex
	err error    // guarded by mu
	id  queue.ID // the one; guarded by mu
}

func (s *stubborn) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *stubborn) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	s.mu.Lock()
	err := s.err
	if s.id == "" && err != nil {
		s.id = l.ID
	}
	other := s.one && s.id != l.ID
	s.mu.Unlock()
	if err != nil && !other {
		return l, err
	}
	return s.Queue.Update(ctx, l, text, visibility)
}

// A handler whose token cannot be renewed ends before another can have that, by its context, and its error is no attempt;
// nothing starts meanwhile under a token that is lost. The others go on.
func TestHandlersEndBeforeTheirTokenDoes(t *testing.T) {
	for what, failure := range map[string]error{"unavailable": queue.ErrUnavailable, "lost": queue.ErrReceiptMismatch} {
		synctest.Test(t, func(t *testing.T) {
			b := tokensSetup(t)
			c := limits.Concurrency{Jobs: 2, PerToken: 2, Seed: 1}
			b.limit(c)
			s := &stubborn{Queue: b.tokens}
			l, _ := b.open(c, s)
			b.put(2)
			q := l.Wrap(b.jobs)
			batch, err := q.Dequeue(t.Context(), 1, 10*time.Minute)
			if err != nil || len(batch) != 1 {
				t.Fatalf("got %d messages, error %v", len(batch), err)
			}
			s.fail(failure)
			begin := time.Now()
			d := dispatcher.Delivery{Queue: q.Name(), ID: batch[0].ID, DequeueCount: 1}
			err = slots.OfFleet(l.Begin, l.End)(t.Context(), d, func(ctx context.Context) error {
				time.Sleep(30 * time.Second) // since the first renewal
				if what == "lost" {
					if more, err := q.Dequeue(ctx, 1, time.Minute); !errors.Is(err, queue.ErrLimited) {
						t.Errorf("%s: got %d messages, error %v; want none under a token that is lost", what, len(more), err)
					}
				}
				<-ctx.Done()
				if took := time.Since(begin); took < 44*time.Second || took > 46*time.Second || b.visible() != 0 {
					t.Errorf("%s: the handler ends after %v, want 15 s before the end of the lease", what, took)
				}
				if !errors.Is(context.Cause(ctx), limits.ErrTokenLost) {
					t.Errorf("%s: the cause is %v", what, context.Cause(ctx))
				}
				return errors.New("interrupted")
			})
			if r := dispatcher.ResultOf(err); r.Outcome != dispatcher.Snoozed {
				t.Errorf("%s: got result %+v, want a snooze", what, r)
			}
			if more, err := q.Dequeue(t.Context(), 1, time.Minute); !errors.Is(err, queue.ErrLimited) {
				t.Errorf("%s: got %d messages, error %v; want no token", what, len(more), err)
			}
		})
	}
}

// When a token is lost so many handlers end as it was worth: the newest.
func TestOneLostTokenEndsOnlyWhatItWasWorth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 4, PerToken: 2, Seed: 1}
		b.limit(c)
		s := &stubborn{Queue: b.tokens, one: true}
		l, _ := b.open(c, s)
		b.put(4)
		q := l.Wrap(b.jobs)
		ctx, stop := context.WithCancel(t.Context())
		var handlers sync.WaitGroup
		var lost [4]bool
		for n := 0; n < 4; time.Sleep(100 * time.Millisecond) {
			batch, err := q.Dequeue(t.Context(), 1, 10*time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range batch {
				i := n
				n++
				handlers.Go(func() {
					d := dispatcher.Delivery{Queue: q.Name(), ID: m.ID, DequeueCount: 1}
					_ = slots.OfFleet(l.Begin, l.End)(ctx, d, func(ctx context.Context) error {
						<-ctx.Done()
						lost[i] = errors.Is(context.Cause(ctx), limits.ErrTokenLost)
						return nil
					})
				})
			}
		}
		s.fail(queue.ErrReceiptMismatch)
		time.Sleep(58 * time.Second)
		stop()
		handlers.Wait()
		if lost != [4]bool{2: true, 3: true} {
			t.Errorf("of four handlers these have ended: %v, want the last two", lost)
		}
	})
}

// A handler that goes on after its token was lost uses room until it returns: none starts beside it when the process has
// the token again.
func TestAHandlerThatGoesOnKeepsItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 1, Seed: 1}
		b.limit(c)
		s := &stubborn{Queue: b.tokens}
		l, _ := b.open(c, s)
		b.put(2)
		q := l.Wrap(b.jobs)
		batch, err := q.Dequeue(t.Context(), 1, 10*time.Minute)
		if err != nil || len(batch) != 1 {
			t.Fatalf("got %d messages, error %v", len(batch), err)
		}
		s.fail(queue.ErrUnavailable)
		d := dispatcher.Delivery{Queue: q.Name(), ID: batch[0].ID, DequeueCount: 1}
		_ = slots.OfFleet(l.Begin, l.End)(t.Context(), d, func(ctx context.Context) error {
			<-ctx.Done()
			s.fail(nil)
			for begin := time.Now(); time.Since(begin) < 2*time.Minute; time.Sleep(time.Second) {
				if more, err := q.Dequeue(t.Context(), 1, time.Minute); !errors.Is(err, queue.ErrLimited) {
					t.Fatalf("got %d messages, error %v; want a limit", len(more), err)
				}
			}
			if b.visible() != 0 {
				t.Error("the process has not taken the token again: this shows nothing")
			}
			return nil
		})
		time.Sleep(20 * time.Second) // its turn may be over
		if more, err := q.Dequeue(t.Context(), 1, time.Minute); err != nil || len(more) != 1 {
			t.Errorf("when it has returned: got %d messages, error %v", len(more), err)
		}
	})
}

// The lease of a token is counted from before the request that took or renewed it, however long the response takes.
func TestALeaseIsCountedFromBeforeItsRequest(t *testing.T) {
	for _, c := range []struct {
		fails, least, most time.Duration // from when on renewals fail, and when the handler must end
	}{
		{0, 44 * time.Second, 46 * time.Second},                // there is only the request that took it
		{30 * time.Second, 65 * time.Second, 72 * time.Second}, // it is under way, and was sent at 20 to 25 s
	} {
		synctest.Test(t, func(t *testing.T) {
			b := tokensSetup(t)
			limit := limits.Concurrency{Jobs: 1, Seed: 1}
			b.limit(limit)
			s := &stubborn{Queue: must(faultqueue.New(b.tokens, &faultqueue.Options{
				UsualLatency: faultqueue.Range{Min: 12 * time.Second, Max: 12 * time.Second},
			}))}
			l, _ := b.open(limit, s)
			b.put(1)
			q := l.Wrap(b.jobs)
			begin := time.Now()
			time.AfterFunc(c.fails, func() { s.fail(queue.ErrUnavailable) })
			batch, err := q.Dequeue(t.Context(), 1, 10*time.Minute)
			if err != nil || len(batch) != 1 {
				t.Fatalf("got %d messages, error %v", len(batch), err)
			}
			d := dispatcher.Delivery{Queue: q.Name(), ID: batch[0].ID, DequeueCount: 1}
			_ = slots.OfFleet(l.Begin, l.End)(t.Context(), d, func(ctx context.Context) error {
				<-ctx.Done()
				if took := time.Since(begin); took < c.least || took > c.most {
					t.Errorf("renewals fail after %v: the handler ends after %v, want %v to %v", c.fails, took, c.least, c.most)
				}
				return nil
			})
		})
	}
}

// A lost token whose lease has ended is forgotten: a process asks for another one as often as one that has none.
func TestALostTokenIsForgottenInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 1, Seed: 1}
		b.limit(c)
		m := new(metered.Meter)
		s := &stubborn{Queue: m.Wrap(b.tokens)}
		s.fail(queue.ErrReceiptMismatch)
		l, _ := b.open(c, s)
		b.put(2)
		q := l.Wrap(b.jobs)
		if batch, err := q.Dequeue(t.Context(), 1, 30*time.Second); err != nil || len(batch) != 1 {
			t.Fatalf("got %d messages, error %v", len(batch), err)
		}
		time.Sleep(61 * time.Second)
		if taken, err := b.tokens.Dequeue(t.Context(), 1, time.Hour); err != nil || len(taken) != 1 { // by another process
			t.Fatalf("got %d tokens, error %v", len(taken), err)
		}
		before := m.Counts().Total().Requests
		for range 240 {
			if _, err := q.Dequeue(t.Context(), 1, time.Minute); !errors.Is(err, queue.ErrLimited) {
				t.Fatalf("got error %v, want a limit", err)
			}
			time.Sleep(time.Second)
		}
		if n := m.Counts().Total().Requests - before; n < 30 || n > 65 {
			t.Errorf("in four minutes %d requests for a token were sent, want one every 4 to 8 s", n)
		}
	})
}

// A process whose turn it is to give a token back, and whose tokens are all lost, does not look again and again whether others
// can be had.
func TestATurnWithOnlyLostTokensSendsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 1, Seed: 1}
		b.limit(c)
		m := new(metered.Meter)
		s := &stubborn{Queue: m.Wrap(must(faultqueue.New(b.tokens, &faultqueue.Options{
			UsualLatency: faultqueue.Range{Min: 10 * time.Millisecond, Max: 10 * time.Millisecond},
		})))}
		l, _ := b.open(c, s)
		b.put(1)
		q := l.Wrap(b.jobs)
		batch, err := q.Dequeue(t.Context(), 1, 10*time.Minute)
		if err != nil || len(batch) != 1 {
			t.Fatalf("got %d messages, error %v", len(batch), err)
		}
		d := dispatcher.Delivery{Queue: q.Name(), ID: batch[0].ID, DequeueCount: 1}
		_ = slots.OfFleet(l.Begin, l.End)(t.Context(), d, func(context.Context) error {
			time.Sleep(30 * time.Second) // the first renewal succeeds, and the second, before the turn, has lost the right to renew
			s.fail(queue.ErrReceiptMismatch)
			time.Sleep(70 * time.Second)
			return nil
		})
		if n := m.Counts().Total().Requests; n > 20 {
			t.Errorf("%d requests for tokens were sent in 100 s, want a few: %v", n, m.Counts())
		}
	})
}
