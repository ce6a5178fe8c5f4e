package millracetest_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/emulator"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/millracetest"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/azurequeue"
)

type counts = map[listener.Outcome]int

// checkOutcomes compares the outcomes of a drain.
func checkOutcomes(t *testing.T, got, want counts) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Errorf("outcomes: got %v, want %v", got, want)
	}
}

func orders(n int) []Order {
	all := make([]Order, n)
	for i := range all {
		all[i].ID = fmt.Sprint(i)
	}
	return all
}

func TestDrainHandlesAllVisibleJobs(t *testing.T) {
	both(t, func(t *testing.T) {
		q := millracetest.Queue(t)
		checkOutcomes(t, millracetest.Drain(t, q, ship, nil), counts{})
		millracetest.Send(t, q, orders(1000)...)
		var runs atomic.Int64
		got := millracetest.Drain(t, q, func(_ context.Context, m *listener.Message[Order]) error {
			runs.Add(1)
			switch m.Body.ID[len(m.Body.ID)-1] {
			case '3':
				return listener.Poison(errBroken)
			case '5':
				return listener.Discard(errBroken)
			case '7':
				return listener.Snooze(time.Hour)
			case '9':
				return listener.Retry(time.Hour, errBroken)
			}
			return nil
		}, nil)
		checkOutcomes(t, got, counts{
			listener.Deleted: 600, listener.Poisoned: 100, listener.Discarded: 100,
			listener.Snoozed: 100, listener.Retried: 100,
		})
		if runs.Load() != 1000 {
			t.Errorf("got %d runs, want 1000", runs.Load())
		}
		if left := len(millracetest.Enqueued[Order](t, q)); left != 200 {
			t.Errorf("got %d jobs left, want 200, those that wait", left)
		}
		if poisoned := len(millracetest.Enqueued[poison.Record](t, q.Sibling(poison.Suffix))); poisoned != 100 {
			t.Errorf("got %d poison records, want 100", poisoned)
		}
	})
}

// Handlers run concurrently, take time, and send more jobs to the same queue.
func TestDrainHandlesJobsThatHandlersSend(t *testing.T) {
	both(t, func(t *testing.T) {
		q := millracetest.Queue(t)
		p := producer.New[Order](q, nil)
		millracetest.Send(t, q, Order{ID: "."})
		got := millracetest.Drain(t, q, func(ctx context.Context, m *listener.Message[Order]) error {
			if len(m.Body.ID) == 6 {
				return nil
			}
			<-time.After(time.Millisecond)
			for range 2 {
				if _, err := p.Send(ctx, Order{ID: m.Body.ID + "."}, nil); err != nil {
					return err
				}
			}
			return nil
		}, nil)
		checkOutcomes(t, got, counts{listener.Deleted: 63})
		millracetest.RequireEmpty(t, q)
	})
}

// A message that is given back without a delay is handled again, up to poison; one with a delay
// is left.
func TestDrainContinuesWhileAMessageIsVisible(t *testing.T) {
	both(t, func(t *testing.T) {
		q := millracetest.Queue(t)
		millracetest.Send(t, q, Order{ID: "7"})
		o := &listener.Options[Order]{RetryDelay: func(int, error) time.Duration { return 0 }}
		checkOutcomes(t, millracetest.Drain(t, q, returning(errBroken), o), counts{listener.Retried: 4, listener.Poisoned: 1})
		millracetest.RequireEmpty(t, q)
	})
}

func TestDrainLeavesHiddenMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := millracetest.Queue(t)
		if _, err := producer.New[Order](q, nil).Send(t.Context(), Order{ID: "7"}, &producer.SendOptions{Delay: time.Hour}); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		checkOutcomes(t, millracetest.Drain(t, q, returning(nil), nil), counts{})
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("got a duration of %v, want 0", waited)
		}
		millracetest.RequireEnqueued(t, q, Order{ID: "7"})
		time.Sleep(time.Hour)
		checkOutcomes(t, millracetest.Drain(t, q, returning(nil), nil), counts{listener.Deleted: 1})
		millracetest.RequireEmpty(t, q)
	})
}

// However many fail, nothing is limited, and no time passes.
func TestDrainLimitsNoFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		q := millracetest.Queue(t)
		millracetest.Send(t, q, orders(200)...)
		o := &listener.Options[Order]{RetryDelay: func(int, error) time.Duration { return 0 }}
		checkOutcomes(t, millracetest.Drain(t, q, returning(errBroken), o), counts{listener.Retried: 800, listener.Poisoned: 200})
		if took := time.Since(begin); took > time.Second {
			t.Errorf("took %v", took)
		}
	})
}

// Handlers are not cancelled, whatever Grace is, and keep their leases.
func TestDrainDoesNotCancelHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := millracetest.Queue(t)
		millracetest.Send(t, q, orders(40)...)
		o := &listener.Options[Order]{Grace: -1, Concurrency: 8, Fetch: listener.FetchOptions{Loops: listener.Loops{Min: 4, Max: 4}}}
		got := millracetest.Drain(t, q, func(ctx context.Context, _ *listener.Message[Order]) error {
			time.Sleep(5 * time.Minute)
			return ctx.Err()
		}, o)
		checkOutcomes(t, got, counts{listener.Deleted: 40})
	})
}

// Queues behind the protocol can be drained, and messages without an envelope.
func TestDrainWorksThroughTheProtocol(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := must(emulator.New(nil, nil))
		q, err := azurequeue.Open(s.ConnectionString(), "jobs", &azurequeue.Options{Transport: &http.Client{Transport: s}})
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		millracetest.Send(t, q, Order{ID: "1"})
		if _, err := q.Enqueue(t.Context(), `{"ID":"2"}`, nil); err != nil {
			t.Fatal(err)
		}
		millracetest.RequireEnqueued(t, q, Order{ID: "2"}, Order{ID: "1"})
		checkOutcomes(t, millracetest.Drain(t, q, returning(nil), nil), counts{listener.Deleted: 2})
		millracetest.RequireEmpty(t, q)
	})
}

// failingQueue is a queue whose first dequeues fail.
type failingQueue struct {
	queue.Queue
	err   error
	times atomic.Int64
}

func (f *failingQueue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	if f.times.Add(-1) >= 0 {
		return nil, f.err
	}
	return f.Queue.Dequeue(ctx, n, visibility)
}

// Transient failures are retried.
func TestDrainOutlastsAThrottledService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &failingQueue{Queue: millracetest.Queue(t), err: queue.ErrThrottled}
		q.times.Store(5)
		millracetest.Send(t, q, orders(3)...)
		checkOutcomes(t, millracetest.Drain(t, q, returning(nil), nil), counts{listener.Deleted: 3})
	})
}

// Permanent failures end the test with their text.
func TestDrainEndsTheTestOnPermanentFailures(t *testing.T) {
	both(t, func(t *testing.T) {
		q := millracetest.Queue(t)
		requireParts(t, failureOf(t, func(t testing.TB) {
			millracetest.Drain(t, q.Sibling("-other"), returning(nil), nil)
		}), "millracetest: ", "dequeue on millracetest/jobs-other", "queue does not exist", "create it first")
		requireParts(t, failureOf(t, func(t testing.TB) {
			refused := &failingQueue{Queue: q, err: queue.ErrUnauthorized}
			refused.times.Store(1)
			millracetest.Drain(t, refused, returning(nil), nil)
		}), "millracetest: ", "unauthorized")

		millracetest.Send(t, q, Order{ID: "7"})
		requireParts(t, failureOf(t, func(t testing.TB) {
			millracetest.Drain(t, q, returning(errBroken), &listener.Options[Order]{
				Poison:     poison.Policy{MaxAttempts: 2000},
				RetryDelay: func(int, error) time.Duration { return 0 },
			})
		}), "millracetest: message ", "millracetest/jobs", "1000 times", "without a delay")
	})
}
