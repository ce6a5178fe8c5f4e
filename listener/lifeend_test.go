package listener

import (
	"context"
	"errors"
	"math"
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

// sendNewer sends a message of a newer version that expires. A worker that sees it as [often] gives
// it back until it can just be handled, or otherwise until the end of its life.
func (b *bundle) sendNewer(ttl time.Duration) {
	b.Helper()
	const text = "millrace/2?id=7\n{}"
	if _, err := b.queue.Queue.Enqueue(b.Context(), text, &queue.EnqueueOptions{TTL: ttl}); err != nil {
		b.Fatal(err)
	}
}

// often is a queue whose messages have been delivered so often that no worker is likely to know them.
func often(q queue.Queue) queue.Queue { return fixedCount{q, 100} }

// A retried give-back asks for no more than the message's remaining life by then.
func TestARetriedGiveBackAsksForTheRemainingLife(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.sendNewer(31 * time.Second)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "update" && time.Since(b.begin) < 5*time.Second {
				return &queue.Error{Op: op, Kind: queue.ErrThrottled, Status: 503}
			}
			return act()
		}
		l := New(often(b.queue), nothing, options())
		b.run(l)
		advance(20 * time.Second)
		if st := l.State(); st.Outcomes[Snoozed] != 1 || b.refusedUpdates() != 0 {
			t.Errorf("got %d refused give-backs, state %+v; want Snoozed 1, refused updates 0", b.refusedUpdates(), st)
		}
		b.mustFinish()
	})
}

// A message that this worker cannot handle comes up while a handler still has time for it, however long it
// would have to wait otherwise, and is not poison at the end of its life.
func TestAMessageForANewerWorkerComesUpBeforeItExpires(t *testing.T) {
	bubble(t, func(b *bundle) {
		const life = 3 * time.Hour
		b.sendNewer(life)
		inTime := 0
		o := fixed(30 * time.Second)
		o.Observer.Received = func([]queue.Message) {
			if left := life - time.Since(b.begin); left > 28*time.Second && left < 35*time.Second {
				inTime++
			}
		}
		l := New(often(b.queue), nothing, o)
		b.run(l)
		advance(life + time.Minute)
		if st := l.State(); inTime != 1 || st.Outcomes[Snoozed] > 7 || st.Outcomes[Poisoned] != 0 || b.refusedUpdates() != 0 {
			t.Errorf("it came %d times half a minute before the end of its life, with %d refused updates, state %+v; want once", inTime, b.refusedUpdates(), st)
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
		o.Concurrency, o.Fetch.BatchSize = 1, 1
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
		if st := l.State(); st.Late != 1 || st.Outcomes[Lost] != 1 || len(until) < 2 || until[1] <= 50*time.Second {
			t.Errorf("got visibilities %v, state %+v; want Late 1, Lost 1, len(until) at least 2, until[1] above %v", until, st, 50*time.Second)
		}
		b.mustFinish()
	})
}

// A give-back that arrives so late that the service refuses it is sent again with a shorter
// delay.
func TestAGiveBackThatArrivesTooLateIsRetriedWithAShorterDelay(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.sendNewer(31 * time.Second)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "update" {
				time.Sleep(10 * time.Second)
			}
			return act()
		}
		l := New(often(b.queue), nothing, options())
		b.run(l)
		advance(21 * time.Second)
		if st := l.State(); st.Outcomes[Snoozed] != 1 || b.refusedUpdates() != 1 {
			t.Errorf("got %d refused give-backs, state %+v; want Snoozed 1, refused updates 1", b.refusedUpdates(), st)
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
