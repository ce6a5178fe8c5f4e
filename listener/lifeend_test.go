package listener

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// A dequeue may hide a message beyond its life. The lease ends with the message nevertheless:
// the handler is cancelled while its result can still be recorded.
func TestALeaseEndsWithTheMessagesLife(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.sendWithTTL(20 * time.Second)
		var ran time.Duration
		var cause error
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			<-ctx.Done()
			ran, cause = time.Since(b.begin), context.Cause(ctx)
			return ctx.Err()
		}, fixed(30*time.Second))
		b.run(l)
		advance(5 * time.Minute)
		if ran >= 20*time.Second || !errors.Is(cause, dispatcher.ErrLeaseExpired) {
			t.Errorf("the handler was cancelled after %v with %v; want below %v, cause dispatcher.ErrLeaseExpired", ran, cause, 20*time.Second)
		}
		records := b.poisonRecords()
		if len(records) != 1 || records[0].Reason != poison.ReasonExpiring {
			t.Errorf("poison records: got %+v, want one with ReasonExpiring", records)
		}
		b.mustFinish()
	})
}

// fixedCount is a queue whose messages have the given dequeue count.
type fixedCount struct {
	queue.Queue
	count int64
}

func (q fixedCount) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	batch, err := q.Queue.Dequeue(ctx, n, visibility)
	for i := range batch {
		batch[i].DequeueCount = q.count
	}
	return batch, err
}

// A dequeue count that serves as the attempt may exceed an int.
func TestALargeDequeueCountIsPoison(t *testing.T) {
	for _, count := range []int64{6, 1 << 31, 1<<32 + 1, math.MaxInt64} {
		for _, text := range []string{`{"N":1}`, "millrace/1?n=5\n{}", "millrace/1?n=2147483647&s=1\n{}"} {
			bubble(t, func(b *bundle) {
				b.putText(text)
				runs := 0
				handler := func(context.Context, *Message[job]) error { runs++; return nil }
				b.run(New(fixedCount{b.queue, count}, handler, options()))
				advance(time.Minute)
				if records := b.poisonRecords(); runs > 0 || len(records) != 1 || records[0].Reason != poison.ReasonAttempts {
					t.Errorf("%q, dequeue count %d: got %d runs, records %+v; want runs 0, len(records) 1, Reason ReasonAttempts", text, count, runs, records)
				}
				b.mustFinish()
			})
		}
	}
}

// snoozesBrief sends a message that expires, and returns a listener that snoozes it for half a minute.
func (b *bundle) snoozesBrief(ttl time.Duration) *Listener[job] {
	b.Helper()
	if _, err := b.queue.Queue.Enqueue(b.Context(), "millrace/1?id=7\n{}", &queue.EnqueueOptions{TTL: ttl}); err != nil {
		b.Fatal(err)
	}
	return New(b.queue, func(context.Context, *Message[job]) error { return Snooze(30 * time.Second) }, options())
}

// A retried give-back asks for no more than the message's remaining life by then.
func TestARetriedGiveBackAsksForTheRemainingLife(t *testing.T) {
	bubble(t, func(b *bundle) {
		l := b.snoozesBrief(33 * time.Second)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "update" && time.Since(b.begin) < 5*time.Second {
				return &queue.Error{Op: op, Kind: queue.ErrThrottled, Status: 503}
			}
			return act()
		}
		b.run(l)
		advance(20 * time.Second)
		if st := l.State(); st.Snoozed != 1 || b.refusedUpdates() != 0 {
			t.Errorf("got %d refused give-backs, state %+v; want Snoozed 1, refused updates 0", b.refusedUpdates(), st)
		}
		b.mustFinish()
	})
}

// A handler that finished too late, because its lease could not be renewed, raises the
// visibility of the next dequeue.
func TestALostLeaseRaisesTheVisibilityOfTheNextDequeue(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		b.send(2)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "update" && time.Since(b.begin) < 40*time.Second {
				return &queue.Error{Op: op, Kind: queue.ErrThrottled, Status: 503}
			}
			return act()
		}
		o := options()
		o.Concurrency, o.BatchSize = 1, 1
		var until []time.Duration
		o.Observer.Received = func(ms []queue.Message) { until = append(until, time.Until(ms[0].Until)) }
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			if time.Since(b.begin) < 20*time.Second {
				return sleep(ctx, time.Hour)
			}
			return nil
		}, o)
		b.run(l)
		advance(5 * time.Minute)
		if st := l.State(); st.Late != 1 || st.Lost != 1 || len(until) < 2 || until[1] <= 50*time.Second {
			t.Errorf("got visibilities %v, state %+v; want Late 1, Lost 1, len(until) at least 2, until[1] above %v", until, st, 50*time.Second)
		}
		b.mustFinish()
	})
}

// A give-back that arrives so late that the service refuses it is sent again with a shorter
// delay.
func TestAGiveBackThatArrivesTooLateIsRetriedWithAShorterDelay(t *testing.T) {
	bubble(t, func(b *bundle) {
		const newer = "millrace/2?id=7\n{}" // it is given back for 2 to 4 s
		if _, err := b.queue.Queue.Enqueue(b.Context(), newer, &queue.EnqueueOptions{TTL: 12 * time.Second}); err != nil {
			b.Fatal(err)
		}
		l := New(b.queue, nothing, options())
		var late atomic.Bool
		b.queue.intercept = func(op string, act func() error) error {
			if op == "update" && late.CompareAndSwap(false, true) {
				time.Sleep(10 * time.Second)
			}
			return act()
		}
		b.run(l)
		advance(21 * time.Second)
		if st := l.State(); st.Snoozed == 0 || b.refusedUpdates() != 1 {
			t.Errorf("got %d refused give-backs, state %+v; want some, refused updates 1", b.refusedUpdates(), st)
		}
		b.mustFinish()
	})
}

// Poison that could not be moved is delivered again before it expires, however long the retry
// delay.
func TestPoisonIsDeliveredAgainBeforeItExpires(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.sendWithTTL(time.Hour)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "enqueue" && time.Since(b.begin) < 50*time.Minute {
				return &queue.Error{Op: op, Kind: queue.ErrUnauthorized, Status: 403}
			}
			return act()
		}
		o := options()
		o.RetryDelay = func(int, error) time.Duration { return 24 * time.Hour }
		b.run(New(b.queue, func(context.Context, *Message[job]) error { return dispatcher.Poison(errors.New("no")) }, o))
		advance(58 * time.Minute) // not in its last second, when a single failed request is too many
		if n := len(b.poisonRecords()); n != 1 {
			t.Errorf("got %d copies near the end of its life, want 1", n)
		}
		b.mustFinish()
	})
}
