package producer_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type order struct{ ID string }

// unsteady fails the first enqueues, before or after they took effect.
type unsteady struct {
	queue.Queue
	failures int
	err      error
	acts     bool
}

func (u *unsteady) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if u.failures == 0 {
		return u.Queue.Enqueue(ctx, text, o)
	}
	u.failures--
	if u.acts {
		if _, err := u.Queue.Enqueue(ctx, text, o); err != nil {
			return queue.Message{}, err
		}
	}
	return queue.Message{}, u.err
}

func setup(t *testing.T) *localqueue.Queue {
	t.Helper()
	q := localqueue.New(nil).Queue(queue.Name{Account: "acme", Queue: "orders"})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	return q
}

func TestSendPutsTheJobOnTheQueue(t *testing.T) {
	for format, want := range map[codec.Format]string{codec.Plain: `{"ID":"7"}`, codec.Base64: "eyJJRCI6IjcifQ=="} {
		q := setup(t)
		sent, err := producer.New(q, &producer.Options[order]{Format: format}).Send(t.Context(), order{"7"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		batch, err := q.Dequeue(t.Context(), 32, time.Minute)
		if err != nil || len(batch) != 1 || batch[0].Text != want || batch[0].ID != sent.ID || !batch[0].Inserted.Equal(sent.Inserted) {
			t.Errorf("%v: got %v, %v; want one message %q with the text %q", format, batch, err, sent.ID, want)
		}
		if batch[0].Expires.Year() != 9999 {
			t.Errorf("it expires at %v, want never", batch[0].Expires)
		}
	}
}

// By default a producer writes an envelope with a job id.
func TestSendWritesAnEnvelope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := setup(t)
		p := producer.New[order](q, nil)
		ids := map[string]bool{}
		for range 3 {
			if _, err := p.Send(t.Context(), order{"7"}, nil); err != nil {
				t.Fatal(err)
			}
		}
		batch, err := q.Peek(t.Context(), 32)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range batch {
			h, body, format, err := codec.Open(m.Text, codec.Auto)
			if err != nil || format != codec.Envelope || string(body) != `{"ID":"7"}` || !h.Enqueued.Equal(time.Now()) || h.Attempts != 0 {
				t.Errorf("got head %+v, body %q, format %v, %v; want an envelope of now without attempts", h, body, format, err)
			}
			ids[h.ID] = true
		}
		if len(ids) != 3 || ids[""] {
			t.Errorf("ids %v, want three different ones", ids)
		}
	})
}

func TestDelayAndTTLAreHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := setup(t)
		_, err := producer.New[order](q, nil).Send(t.Context(), order{"7"}, &producer.SendOptions{Delay: time.Minute, TTL: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		if batch, _ := q.Peek(t.Context(), 1); len(batch) != 0 {
			t.Errorf("%d messages are visible before the delay, want 0", len(batch))
		}
		time.Sleep(time.Minute)
		if batch, _ := q.Peek(t.Context(), 1); len(batch) != 1 || batch[0].Expires.Sub(batch[0].Inserted) != time.Hour {
			t.Errorf("got %v, want one message that lives for an hour", batch)
		}
	})
}

// B-17, X-22: transient failures are retried; a lost answer may create two messages for one
// job, but never none.
func TestASendIsRepeatedAndNeverLost(t *testing.T) {
	for _, c := range []struct {
		err  error
		acts bool
		want int64
	}{
		{queue.ErrThrottled, false, 1},
		{queue.ErrUnavailable, false, 1},
		{queue.ErrOutcomeUnknown, false, 1},
		{queue.ErrOutcomeUnknown, true, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			q := setup(t)
			u := &unsteady{Queue: q, failures: 2, err: c.err, acts: c.acts}
			if _, err := producer.New[order](u, nil).Send(t.Context(), order{"7"}, nil); err != nil {
				t.Fatal(err)
			}
			if p, err := q.Properties(t.Context()); err != nil || p.Depth != c.want {
				t.Errorf("%v: %d messages, %v; want %d", c.err, p.Depth, err, c.want)
			}
		})
	}
}

func TestASendEndsWithItsTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &unsteady{Queue: setup(t), failures: 1 << 30, err: queue.ErrThrottled}
		begin := time.Now()
		_, err := producer.New(u, &producer.Options[order]{Timeout: 5 * time.Second}).Send(t.Context(), order{"7"}, nil)
		if !errors.Is(err, queue.ErrThrottled) || !strings.Contains(err.Error(), "acme/orders") || time.Since(begin) > 5*time.Second {
			t.Errorf("got %v after %v, want %v of acme/orders within 5 s", err, time.Since(begin), queue.ErrThrottled)
		}
	})
}

// A time-out without a unit is an error: Timeout: 30 compiles and means 30 ns.
func TestATimeoutWithoutAUnitSaysSo(t *testing.T) {
	_, err := producer.New(setup(t), &producer.Options[order]{Timeout: 30}).Send(t.Context(), order{"7"}, nil)
	if err == nil || !strings.Contains(err.Error(), "30*time.Second") {
		t.Errorf("got %v, want an error that says 30*time.Second", err)
	}
}

func TestBadJobsFailBeforeAnythingIsSent(t *testing.T) {
	u := &unsteady{Queue: setup(t), failures: 1, err: queue.ErrUnauthorized}
	if _, err := producer.New[chan int](u, nil).Send(t.Context(), nil, nil); err == nil {
		t.Error("a channel was sent, want an error")
	}
	if _, err := producer.New(u, &producer.Options[order]{Format: codec.Format(9)}).Send(t.Context(), order{}, nil); err == nil {
		t.Error("a job was sent in format 9, want an error")
	}
	if u.failures != 1 {
		t.Error("something was sent, want nothing")
	}
	if _, err := producer.New[order](u, nil).Send(t.Context(), order{}, nil); !errors.Is(err, queue.ErrUnauthorized) || u.failures != 0 {
		t.Errorf("got %v, want %v", err, queue.ErrUnauthorized)
	}
	tight := order{strings.Repeat("x", queue.MaxText-110)}
	if _, err := producer.New[order](setup(t), nil).Send(t.Context(), tight, nil); !errors.Is(err, queue.ErrTooLarge) ||
		!strings.Contains(err.Error(), "record attempts") {
		t.Errorf("a job with no room for its attempts: got %v, want %v", err, queue.ErrTooLarge)
	}
	// 52 KB of text that are 156 KB on the wire.
	escaped := order{strings.Repeat(`"`, 26_000)}
	if _, err := producer.New[order](setup(t), nil).Send(t.Context(), escaped, nil); !errors.Is(err, queue.ErrTooLarge) ||
		!strings.Contains(err.Error(), "escaped for XML") {
		t.Errorf("a job that is too large once escaped: got %v, want %v", err, queue.ErrTooLarge)
	}
	large := order{strings.Repeat("x", queue.MaxText)}
	if _, err := producer.New[order](setup(t), nil).Send(t.Context(), large, nil); !errors.Is(err, queue.ErrTooLarge) {
		t.Errorf("got %v, want %v", err, queue.ErrTooLarge)
	}
}
