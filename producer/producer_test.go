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
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type order struct{ ID string }

// failingQueue fails the first enqueues, before or after they took effect.
type failingQueue struct {
	queue.Queue
	failures int
	err      error
	acts     bool // the failing enqueues take effect
}

func (u *failingQueue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
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

func setup(t *testing.T) queue.Manager {
	t.Helper()
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "acme", Queue: "orders"})
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
		if err != nil || len(batch) != 1 {
			t.Fatalf("%v: got %v, %v; want one message", format, batch, err)
		}
		m := batch[0]
		if m.Text != want || m.ID != sent.ID || !m.Inserted.Equal(sent.Inserted) {
			t.Errorf("%v: got %+v, want the text %q and the id and time of %+v", format, m, want, sent)
		}
		if m.Expires.Year() != 9999 {
			t.Errorf("%v: got the expiry %v, want never", format, m.Expires)
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
			h, body, format, err := envelope.Open(m.Text, codec.Auto)
			if err != nil || format != codec.Envelope || string(body) != `{"ID":"7"}` {
				t.Errorf("got body %q, format %v, error %v; want the job in an envelope", body, format, err)
			}
			if !h.Enqueued.Equal(time.Now()) || h.Attempts != 0 {
				t.Errorf("got head %+v, want the time now and no attempts", h)
			}
			ids[h.ID] = true
		}
		if len(ids) != 3 || ids[""] {
			t.Errorf("got ids %v, want three different ones", ids)
		}
	})
}

func TestDelayAndTTLApplyToTheMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := setup(t)
		o := &producer.SendOptions{Delay: time.Minute, TTL: time.Hour}
		_, err := producer.New[order](q, nil).Send(t.Context(), order{"7"}, o)
		if err != nil {
			t.Fatal(err)
		}
		if batch, _ := q.Peek(t.Context(), 1); len(batch) != 0 {
			t.Errorf("visible messages during the delay: got %d, want 0", len(batch))
		}
		time.Sleep(time.Minute)
		if batch, _ := q.Peek(t.Context(), 1); len(batch) != 1 || batch[0].Expires.Sub(batch[0].Inserted) != time.Hour {
			t.Errorf("after the delay: got %v, want one message with a TTL of an hour", batch)
		}
	})
}

// B-17, X-22: transient failures are retried. A lost response may create two messages for one
// job, but never none.
func TestATransientFailureOfASendIsRetried(t *testing.T) {
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
			u := &failingQueue{Queue: q, failures: 2, err: c.err, acts: c.acts}
			if _, err := producer.New[order](u, nil).Send(t.Context(), order{"7"}, nil); err != nil {
				t.Fatal(err)
			}
			if p, err := q.Properties(t.Context()); err != nil || p.Depth != c.want {
				t.Errorf("%v: got %d messages, error %v; want %d", c.err, p.Depth, err, c.want)
			}
		})
	}
}

func TestASendEndsWithItsTimeOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := &failingQueue{Queue: setup(t), failures: 1 << 30, err: queue.ErrThrottled}
		begin := time.Now()
		_, err := producer.New(u, &producer.Options[order]{Timeout: 5 * time.Second}).Send(t.Context(), order{"7"}, nil)
		if !errors.Is(err, queue.ErrThrottled) || !strings.Contains(err.Error(), "acme/orders") || time.Since(begin) > 5*time.Second {
			t.Errorf("got error %v after %v; want ErrThrottled with acme/orders within 5 s", err, time.Since(begin))
		}
	})
}

// A time-out without a unit is an error: Timeout: 30 compiles and means 30 ns.
func TestATimeoutWithoutAUnitIsAnError(t *testing.T) {
	_, err := producer.New(setup(t), &producer.Options[order]{Timeout: 30}).Send(t.Context(), order{"7"}, nil)
	if err == nil || !strings.Contains(err.Error(), "30*time.Second") {
		t.Errorf("got error %v, want \"30*time.Second\" in it", err)
	}
}

func TestBadJobsFailBeforeAnythingIsSent(t *testing.T) {
	u := &failingQueue{Queue: setup(t), failures: 1, err: queue.ErrUnauthorized}
	if _, err := producer.New[chan int](u, nil).Send(t.Context(), nil, nil); err == nil {
		t.Error("Send of a channel: got no error, want one")
	}
	if _, err := producer.New(u, &producer.Options[order]{Format: "xml"}).Send(t.Context(), order{}, nil); err == nil {
		t.Error("Send in an unknown format: got no error, want one")
	}
	if u.failures != 1 {
		t.Error("got an enqueue, want none for invalid jobs")
	}
	if _, err := producer.New[order](u, nil).Send(t.Context(), order{}, nil); !errors.Is(err, queue.ErrUnauthorized) || u.failures != 0 {
		t.Errorf("got error %v, want ErrUnauthorized of the one enqueue", err)
	}
	tight := order{strings.Repeat("x", queue.MaxText-110)}
	if _, err := producer.New[order](setup(t), nil).Send(t.Context(), tight, nil); !errors.Is(err, queue.ErrTooLarge) ||
		!strings.Contains(err.Error(), "record attempts") {
		t.Errorf("a job without room for records: got error %v, want ErrTooLarge that says so", err)
	}
	// 52 KB of text that are 156 KB when escaped.
	escaped := order{strings.Repeat(`"`, 26_000)}
	if _, err := producer.New[order](setup(t), nil).Send(t.Context(), escaped, nil); !errors.Is(err, queue.ErrTooLarge) ||
		!strings.Contains(err.Error(), "escaped for XML") {
		t.Errorf("a job that is too large when escaped: got error %v, want ErrTooLarge that says so", err)
	}
	large := order{strings.Repeat("x", queue.MaxText)}
	if _, err := producer.New[order](setup(t), nil).Send(t.Context(), large, nil); !errors.Is(err, queue.ErrTooLarge) {
		t.Errorf("a large job: got error %v, want ErrTooLarge", err)
	}
}
