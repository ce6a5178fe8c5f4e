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
		b.mortal(20 * time.Second)
		var ran time.Duration
		var cause error
		l := New(b.queue, func(ctx context.Context, _ *Message[job]) error {
			<-ctx.Done()
			ran, cause = time.Since(b.begin), context.Cause(ctx)
			return ctx.Err()
		}, fixed(30*time.Second))
		b.run(l)
		after(5 * time.Minute)
		if ran >= 20*time.Second || !errors.Is(cause, dispatcher.ErrLeaseExpired) {
			t.Errorf("the handler was told after %v, because %v", ran, cause)
		}
		records := b.copies()
		if len(records) != 1 || records[0].Reason != poison.ReasonExpiring {
			t.Errorf("copies %+v", records)
		}
		b.finished()
	})
}

// counting is a queue whose messages have a given dequeue count.
type counting struct {
	queue.Queue
	count int64
}

func (q counting) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
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
				b.run(New(counting{b.queue, count}, func(context.Context, *Message[job]) error { runs++; return nil }, options()))
				after(time.Minute)
				if records := b.copies(); runs > 0 || len(records) != 1 || records[0].Reason != poison.ReasonAttempts {
					t.Errorf("%q delivered %d times: %d runs, copies %+v", text, count, runs, records)
				}
				b.finished()
			})
		}
	}
}

// A retried give-back asks for no more than the message's remaining life by then.
func TestARepeatedGiveBackAsksForWhatIsLeft(t *testing.T) {
	bubble(t, func(b *bundle) {
		newer := "millrace/2?id=7\n{}" // is left alone for half a minute
		if _, err := b.queue.Queue.Enqueue(b.Context(), newer, &queue.EnqueueOptions{TTL: 33 * time.Second}); err != nil {
			b.Fatal(err)
		}
		b.queue.tamper = func(op string, act func() error) error {
			if op == "update" && time.Since(b.begin) < 5*time.Second {
				return &queue.Error{Op: op, Kind: queue.ErrThrottled, Status: 503}
			}
			return act()
		}
		l := New(b.queue, nothing, options())
		b.run(l)
		after(20 * time.Second)
		if st := l.State(); st.Snoozed != 1 || b.refused() != 0 {
			t.Errorf("%d give-backs were refused, state %+v", b.refused(), st)
		}
		b.finished()
	})
}

// A handler that finished too late, because its lease could not be renewed, raises the
// visibility of the next dequeue.
func TestALostLeaseRaisesTheVisibilityOfTheNextDequeue(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		b.send(2)
		b.queue.tamper = func(op string, act func() error) error {
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
		after(5 * time.Minute)
		if st := l.State(); st.Late != 1 || st.Lost != 1 || len(until) < 2 || until[1] <= 50*time.Second {
			t.Errorf("fetched with %v, state %+v", until, st)
		}
		b.finished()
	})
}

// A give-back that arrives so late that the service refuses it is sent again with a shorter
// delay.
func TestAGiveBackThatArrivesTooLateIsSentAgainWithLess(t *testing.T) {
	bubble(t, func(b *bundle) {
		newer := "millrace/2?id=7\n{}"
		if _, err := b.queue.Queue.Enqueue(b.Context(), newer, &queue.EnqueueOptions{TTL: 35 * time.Second}); err != nil {
			b.Fatal(err)
		}
		b.queue.tamper = func(op string, act func() error) error {
			if op == "update" {
				time.Sleep(10 * time.Second)
			}
			return act()
		}
		l := New(b.queue, nothing, options())
		b.run(l)
		after(21 * time.Second)
		if st := l.State(); st.Snoozed != 1 || b.refused() != 1 {
			t.Errorf("%d give-backs were refused, state %+v", b.refused(), st)
		}
		b.finished()
	})
}

// Poison that could not be moved is delivered again before it expires, however long the retry
// delay.
func TestPoisonComesUpToBeMovedBeforeItsLifeEnds(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.mortal(time.Hour)
		b.queue.tamper = func(op string, act func() error) error {
			if op == "enqueue" && time.Since(b.begin) < 50*time.Minute {
				return &queue.Error{Op: op, Kind: queue.ErrUnauthorized, Status: 403}
			}
			return act()
		}
		o := options()
		o.RetryDelay = func(int, error) time.Duration { return 24 * time.Hour }
		b.run(New(b.queue, func(context.Context, *Message[job]) error { return dispatcher.Poison(errors.New("no")) }, o))
		after(58 * time.Minute) // not in its last second, when one request that fails is too many
		if n := len(b.copies()); n != 1 {
			t.Errorf("%d copies near the end of its life", n)
		}
		b.finished()
	})
}
