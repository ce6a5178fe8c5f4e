package listener

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/producer"
)

// send sends one job in an envelope.
func (b *bundle) send(n int) {
	b.Helper()
	if _, err := producer.New[job](b.queue.Queue, nil).Send(b.Context(), job{n}, nil); err != nil {
		b.Fatal(err)
	}
}

// die dequeues the message and lets its visibility end, like a worker that is killed.
func (b *bundle) die() {
	b.Helper()
	if batch, err := b.queue.Queue.Dequeue(b.Context(), 1, time.Second); err != nil || len(batch) != 1 {
		b.Fatalf("dequeued %d, %v", len(batch), err)
	}
	after(2 * time.Second)
}

// Invariant 5, Q-27: without faults a handler runs exactly MaxAttempts times, and lost
// deliveries in between are not attempts.
func TestInvariant5_LostDeliveriesAreNoAttempts(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		var attempts []int
		var counts []int64
		o := options()
		o.RetryDelay = func(int, error) time.Duration { return time.Minute }
		handler := func(_ context.Context, m *Message[job]) error {
			attempts, counts = append(attempts, m.Attempt), append(counts, m.DequeueCount)
			return errors.New("no")
		}
		for range 2 { // two rounds: workers die, then one fails twice
			for range 4 {
				b.die()
			}
			l := New(b.queue, handler, o)
			b.run(l)
			after(90 * time.Second)
			b.finished()
			after(time.Minute)
		}
		b.run(New(b.queue, handler, o))
		after(10 * time.Minute)
		b.finished()
		if fmt.Sprint(attempts) != "[1 2 3 4 5]" {
			t.Errorf("attempts %v at dequeue counts %v, want 1 to 5", attempts, counts)
		}
		if counts[0] != 5 || counts[2] != 11 {
			t.Errorf("dequeue counts %v, want the first runs of the rounds at 5 and 11", counts)
		}
		r, err := poison.ParseRecord(b.poisoned()[0].Text)
		if err != nil || r.Attempts != 5 || r.Reason != poison.ReasonAttempts {
			t.Errorf("record %+v, %v", r, err)
		}
	})
}

// A snooze gives the message back for later and is not an attempt, however often.
func TestASnoozeIsNoAttempt(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		runs := 0
		var at []time.Duration
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			at = append(at, time.Since(b.begin))
			if m.Attempt != 1 {
				t.Errorf("run %d is attempt %d", runs, m.Attempt)
			}
			if runs++; runs < 50 {
				return dispatcher.Snooze(time.Minute)
			}
			return nil
		}, options())
		b.run(l)
		after(2 * time.Hour)
		b.finished()
		if st := l.State(); runs != 50 || st.Succeeded != 1 || st.Snoozed != 49 || st.Errors != 0 {
			t.Errorf("%d runs, state %+v", runs, st)
		}
		if gap := at[1] - at[0]; gap < time.Minute || gap > time.Minute+2*time.Second {
			t.Errorf("it came back after %v", gap)
		}
	})
}

// A shutdown is not an attempt either, however often it happens.
func TestAShutdownIsNoAttempt(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		o := options()
		o.Grace = -1
		last := 0
		for range 20 {
			l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
				last = m.Attempt
				<-ctx.Done()
				return ctx.Err()
			}, o)
			b.run(l)
			after(time.Second)
			b.finished()
			if st := l.State(); st.GivenBack != 1 {
				t.Fatalf("state %+v", st)
			}
		}
		if last != 1 {
			t.Errorf("after 20 shutdowns it is attempt %d", last)
		}
	})
}

// B-19: an envelope of a newer version goes back with a delay and no attempt, unread.
func TestANewerEnvelopeIsLeftToANewerWorker(t *testing.T) {
	bubble(t, func(b *bundle) {
		const text = "millrace/2?who=knows\nwhat"
		b.putText(text)
		l := New(b.queue, func(context.Context, *Message[job]) error { t.Error("it was handled"); return nil }, options())
		b.run(l)
		after(10 * time.Minute)
		b.finished()
		after(time.Minute)
		batch, err := b.queue.Queue.Peek(b.Context(), 1)
		if err != nil || len(batch) != 1 || batch[0].Text != text {
			t.Errorf("got %v, %v", batch, err)
		}
		if n := l.State().Snoozed; n < 20 || n > 21 {
			t.Errorf("snoozed %d times in ten minutes", n)
		}
	})
}

// A message without an envelope is never rewritten unless it is adopted.
func TestAForeignMessageIsRewrittenOnlyToAdoptIt(t *testing.T) {
	for _, adopt := range []bool{false, true} {
		bubble(t, func(b *bundle) {
			b.putText(`{"N":1}`)
			o := options()
			o.Adopt = adopt
			o.RetryDelay = func(int, error) time.Duration { return time.Hour }
			l := New(b.queue, func(context.Context, *Message[job]) error { return errors.New("no") }, o)
			b.run(l)
			after(time.Second)
			b.finished()
			after(2 * time.Hour)
			batch, err := b.queue.Queue.Peek(b.Context(), 1)
			if err != nil || len(batch) != 1 {
				t.Fatal(batch, err)
			}
			h, body, format, err := codec.Open(batch[0].Text, codec.Auto)
			if err != nil || string(body) != `{"N":1}` || (format == codec.Envelope) != adopt {
				t.Errorf("adopt %v: %+v, %q, %v, %v", adopt, h, body, format, err)
			}
			if adopt && (h.Attempts != 1 || h.Settled != 1) {
				t.Errorf("adopted as %+v", h)
			}
		})
	}
}
