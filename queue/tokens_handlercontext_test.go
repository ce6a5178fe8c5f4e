package queue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/limits"
)

// inHandler calls handle in a handler of a process that has one token, with a context below parent.
func inHandler(parent context.Context, t *testing.T, handle func(ctx context.Context, l *limits.ConcurrencyLimit)) {
	b := tokensSetup(t)
	c := limits.Concurrency{Jobs: 1, Seed: 1}
	b.limit(c)
	l, _ := b.open(c, b.tokens)
	b.put(1)
	q := l.Wrap(b.jobs)
	batch, err := q.Dequeue(t.Context(), 1, time.Hour)
	if err != nil || len(batch) != 1 {
		t.Fatalf("got %d messages, error %v", len(batch), err)
	}
	_ = slots.OfFleet(l.Begin, l.End)(parent, dispatcher.Delivery{Queue: q.Name(), ID: batch[0].ID, DequeueCount: 1}, func(ctx context.Context) error {
		handle(ctx, l)
		return nil
	})
}

// A handler returns once, however often End is called with its context, or one derived from it. Other contexts change nothing.
func TestAHandlerReturnsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 2, PerToken: 2, Seed: 1}
		b.limit(c)
		l, _ := b.open(c, b.tokens)
		b.put(2)
		q := l.Wrap(b.jobs)
		batch, err := q.Dequeue(t.Context(), 2, time.Hour)
		if err != nil || len(batch) != 2 {
			t.Fatalf("got %d messages, error %v", len(batch), err)
		}
		var handlers []context.Context
		for _, m := range batch {
			ctx, err := l.Begin(t.Context(), q.Name(), m.ID, 1, false)
			if err != nil {
				t.Fatal(err)
			}
			handlers = append(handlers, ctx)
		}
		derived, cancel := context.WithCancel(handlers[0])
		defer cancel()
		for _, ctx := range []context.Context{t.Context(), derived, derived} {
			if l.End(ctx) {
				t.Error("a handler that returned was stopped")
			}
		}
		b.put(2)
		if batch, err := q.Dequeue(t.Context(), 2, time.Hour); err != nil || len(batch) != 1 {
			t.Errorf("beside a handler that runs: got %d messages, error %v; want 1", len(batch), err)
		}
		l.End(handlers[0])
		l.End(handlers[1])
	})
}

// With one limit inside of another, each ends its own handler, whichever context it is given.
func TestALimitInsideOfAnotherEndsItsOwnHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 2, PerToken: 2, Seed: 1}
		b.limit(c)
		outer, _ := b.open(c, b.tokens)
		inner, _ := b.open(c, b.tokens)
		b.put(1)
		q := outer.Wrap(b.jobs)
		batch, err := q.Dequeue(t.Context(), 1, time.Hour)
		if err != nil || len(batch) != 1 {
			t.Fatalf("got %d messages, error %v", len(batch), err)
		}
		around, err := outer.Begin(t.Context(), q.Name(), batch[0].ID, 1, false)
		if err != nil {
			t.Fatal(err)
		}
		inner.End(around) // of the other limit
		derived, cancel := context.WithCancel(around)
		defer cancel()
		b.put(2)
		if batch, err := q.Dequeue(t.Context(), 2, time.Hour); err != nil || len(batch) != 1 {
			t.Errorf("beside a handler that runs: got %d messages, error %v; want 1", len(batch), err)
		}
		outer.End(derived)
		if around.Err() == nil {
			t.Error("the handler has not ended")
		}
	})
}

type keyOfTest struct{}

// The context of a handler is one below that of its delivery: with its values, its deadline, and its end.
func TestTheContextOfAHandlerIsThatOfItsDelivery(t *testing.T) {
	for _, asked := range []bool{false, true} { // by somebody who waits for it, before it ends
		synctest.Test(t, func(t *testing.T) {
			why := errors.New("stopped")
			parent, stop := context.WithCancelCause(context.WithValue(t.Context(), keyOfTest{}, "value"))
			parent, cancel := context.WithTimeout(parent, time.Hour)
			defer cancel()
			inHandler(parent, t, func(ctx context.Context, _ *limits.ConcurrencyLimit) {
				if asked {
					_ = ctx.Done()
				}
				want, _ := parent.Deadline()
				if got, ok := ctx.Deadline(); !ok || !got.Equal(want) || ctx.Value(keyOfTest{}) != "value" || ctx.Err() != nil || context.Cause(ctx) != nil {
					t.Errorf("got deadline %v, value %v, error %v, cause %v", got, ctx.Value(keyOfTest{}), ctx.Err(), context.Cause(ctx))
				}
				below, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				stop(why)
				for _, one := range []context.Context{ctx, below} {
					<-one.Done()
					if one.Err() != context.Canceled || !errors.Is(context.Cause(one), why) {
						t.Errorf("got error %v, cause %v; want %v", one.Err(), context.Cause(one), why)
					}
				}
			})
		})
	}
}

// The context of a handler ends when the limit does, for all who see it: those that wait, that ask later, and contexts below.
func TestTheContextOfAHandlerEndsWithItsToken(t *testing.T) {
	for _, asked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			inHandler(t.Context(), t, func(ctx context.Context, l *limits.ConcurrencyLimit) {
				below := ctx
				if asked {
					var cancel context.CancelFunc
					below, cancel = context.WithTimeout(ctx, time.Hour)
					defer cancel()
				}
				l.Halt()
				synctest.Wait()
				for _, one := range []context.Context{below, ctx} {
					if one.Err() != context.Canceled || !errors.Is(context.Cause(one), limits.ErrTokenLost) {
						t.Errorf("got error %v, cause %v; want %v", one.Err(), context.Cause(one), limits.ErrTokenLost)
					}
					<-one.Done()
				}
			})
		})
	}
}

// What a handler has left behind learns that it has returned, also if it asks only then, and also if other handlers
// of the message follow.
func TestTheContextOfAHandlerEndsWithIt(t *testing.T) {
	for _, asked := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := tokensSetup(t)
			c := limits.Concurrency{Jobs: 1, Seed: 1}
			b.limit(c)
			l, _ := b.open(c, b.tokens)
			b.put(1)
			q := l.Wrap(b.jobs)
			batch, err := q.Dequeue(t.Context(), 1, time.Hour)
			if err != nil || len(batch) != 1 {
				t.Fatalf("got %d messages, error %v", len(batch), err)
			}
			var left []context.Context
			for item := range 3 {
				d := dispatcher.Delivery{Queue: q.Name(), ID: batch[0].ID, DequeueCount: 1, Item: item, Items: 3}
				_ = slots.OfFleet(l.Begin, l.End)(t.Context(), d, func(ctx context.Context) error {
					if asked {
						_ = ctx.Done()
					}
					if ctx.Err() != nil {
						t.Errorf("item %d begins with an error: %v", item, ctx.Err())
					}
					for i, one := range left {
						if one.Err() != context.Canceled {
							t.Errorf("during item %d the context of item %d has the error %v", item, i, one.Err())
						}
					}
					left = append(left, ctx)
					return nil
				})
			}
			for i, one := range left {
				if cause := context.Cause(one); !errors.Is(cause, context.Canceled) {
					t.Errorf("item %d: got cause %v, want canceled", i, cause)
				}
				<-one.Done()
			}
		})
	}
}

// jobsOnly is a queue that has as many jobs as are asked for.
type jobsOnly struct {
	queue.Queue
	batch []queue.Message
}

func (q *jobsOnly) Dequeue(context.Context, int, time.Duration) ([]queue.Message, error) {
	return append([]queue.Message(nil), q.batch...), nil
}

func (q *jobsOnly) Delete(context.Context, queue.Lease) error { return nil }

// A limit that holds nothing back allocates little for a job.
func TestAConcurrencyAllocatesLittlePerJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 64, PerToken: 32, Seed: 1}
		b.limit(c)
		l, _ := b.open(c, b.tokens)
		inner := &jobsOnly{Queue: b.jobs}
		for i := range 32 {
			inner.batch = append(inner.batch, queue.Message{Lease: queue.Lease{ID: queue.ID(rune('a' + i)), Receipt: "r"}, DequeueCount: 1})
		}
		q := l.Wrap(inner)
		round := func() {
			batch, err := q.Dequeue(t.Context(), 32, time.Minute)
			if err != nil || len(batch) != 32 {
				t.Fatalf("got %d messages, error %v", len(batch), err)
			}
			for _, m := range batch {
				d := dispatcher.Delivery{Queue: q.Name(), ID: m.ID, DequeueCount: 1}
				if err := slots.OfFleet(l.Begin, l.End)(t.Context(), d, func(context.Context) error { return nil }); err != nil {
					t.Fatal(err)
				}
				if err := q.Delete(t.Context(), m.Lease); err != nil {
					t.Fatal(err)
				}
			}
		}
		perJob := testing.AllocsPerRun(100, round) / 32
		t.Logf("%.2f allocations a job", perJob)
		if perJob > 2 {
			t.Errorf("got %.2f allocations a job, want 2 at most", perJob)
		}
	})
}
