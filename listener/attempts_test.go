package listener

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/envelope"
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

// loseDelivery dequeues the message and lets its visibility end, like a worker that is killed.
func (b *bundle) loseDelivery() {
	b.Helper()
	if batch, err := b.queue.Queue.Dequeue(b.Context(), 1, time.Second); err != nil || len(batch) != 1 {
		b.Fatalf("got %d messages, %v; want 1, no error", len(batch), err)
	}
	advance(2 * time.Second)
}

// Invariant 5, Q-27: without faults a handler runs exactly MaxAttempts times, and lost
// deliveries in between are not attempts.
func TestLostDeliveriesAreNotAttempts(t *testing.T) {
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
		for range 2 { // in each round four workers are killed, then the handler fails twice
			for range 4 {
				b.loseDelivery()
			}
			l := New(b.queue, handler, o)
			b.run(l)
			advance(90 * time.Second)
			b.mustFinish()
			advance(time.Minute)
		}
		b.run(New(b.queue, handler, o))
		advance(10 * time.Minute)
		b.mustFinish()
		if fmt.Sprint(attempts) != "[1 2 3 4 5]" {
			t.Errorf("got attempts %v at dequeue counts %v, want attempts 1 to 5", attempts, counts)
		}
		if counts[0] != 5 || counts[2] != 11 {
			t.Errorf("got dequeue counts %v, want 5 and 11 for the first runs of the rounds", counts)
		}
		r, err := poison.ParseRecord(b.poisoned()[0].Text)
		if err != nil || r.Attempts != 5 || r.Reason != poison.ReasonAttempts {
			t.Errorf("got record %+v, %v; want Attempts 5, Reason ReasonAttempts, no error", r, err)
		}
	})
}

// A snooze gives the message back for later and is not an attempt, however often.
func TestASnoozeIsNotAnAttempt(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		runs := 0
		var at []time.Duration
		l := New(b.queue, func(_ context.Context, m *Message[job]) error {
			at = append(at, time.Since(b.begin))
			if m.Attempt != 1 {
				t.Errorf("run %d: got attempt %d, want 1", runs, m.Attempt)
			}
			if runs++; runs < 50 {
				return dispatcher.Snooze(time.Minute)
			}
			return nil
		}, options())
		b.run(l)
		advance(2 * time.Hour)
		b.mustFinish()
		if st := l.State(); runs != 50 || st.Outcomes[Deleted] != 1 || st.Outcomes[Snoozed] != 49 || st.Errors != 0 {
			t.Errorf("got %d runs, state %+v; want runs 50, Succeeded 1, Snoozed 49, Errors 0", runs, st)
		}
		if gap := at[1] - at[0]; gap < time.Minute || gap > time.Minute+2*time.Second {
			t.Errorf("delay: got %v, want between %v and %v", gap, time.Minute, time.Minute+2*time.Second)
		}
	})
}

// A shutdown is not an attempt either, however often it happens.
func TestAShutdownIsNotAnAttempt(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		o := options()
		var log lockedLog
		o.Grace, o.Logger = -1, textLogger(&log)
		last := 0
		for range 20 {
			l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
				last = m.Attempt
				<-ctx.Done()
				return ctx.Err()
			}, o)
			b.run(l)
			advance(time.Second)
			b.mustFinish()
			if st := l.State(); st.Outcomes[Returned] != 1 {
				t.Fatalf("got state %+v; want Returned 1", st)
			}
		}
		if last != 1 {
			t.Errorf("after 20 shutdowns: got attempt %d, want 1", last)
		}
		if n := log.count("draining", "grace=0s"); n != 20 {
			t.Errorf("the log says %d times that there is no grace, want 20", n)
		}
	})
}

// B-19: an envelope of a newer version goes back with a delay and no attempt, unread.
func TestANewerEnvelopeIsLeftToANewerWorker(t *testing.T) {
	bubble(t, func(b *bundle) {
		const text = "millrace/2?who=knows\nwhat"
		b.putText(text)
		l := New(b.queue, func(context.Context, *Message[job]) error { t.Error("the message was handled"); return nil }, options())
		b.run(l)
		advance(10 * time.Minute)
		b.mustFinish()
		advance(10 * time.Minute)
		batch, err := b.queue.Queue.Peek(b.Context(), 1)
		if err != nil || len(batch) != 1 || batch[0].Text != text {
			t.Errorf("peek: got %v, %v; want one message with the text %v", batch, err, text)
		}
		if n := l.State().Outcomes[Snoozed]; n < 40 || n > 50 {
			t.Errorf("got %d snoozes in ten minutes; want between 40 and 50", n)
		}
	})
}

// A message without an envelope is rewritten only if it is adopted.
func TestAForeignMessageIsRewrittenOnlyToAdoptIt(t *testing.T) {
	for _, adopt := range []bool{false, true} {
		bubble(t, func(b *bundle) {
			b.putText(`{"N":1}`)
			o := options()
			o.Wire.AcceptForeign = adopt
			o.RetryDelay = func(int, error) time.Duration { return time.Hour }
			l := New(b.queue, func(context.Context, *Message[job]) error { return errors.New("no") }, o)
			b.run(l)
			advance(time.Second)
			b.mustFinish()
			advance(2 * time.Hour)
			batch, err := b.queue.Queue.Peek(b.Context(), 1)
			if err != nil || len(batch) != 1 {
				t.Fatal(batch, err)
			}
			h, body, format, err := envelope.Open(batch[0].Text, codec.Auto)
			if err != nil || string(body) != `{"N":1}` || (format == codec.Envelope) != adopt {
				t.Errorf("adopt %v: got head %+v, body %q, format %v, error %v; want the body of before and an envelope only if adopted",
					adopt, h, body, format, err)
			}
			if adopt && (h.Attempts != 1 || h.Settled != 1) {
				t.Errorf("adopted head: got %+v, want Attempts 1, Settled 1", h)
			}
		})
	}
}
