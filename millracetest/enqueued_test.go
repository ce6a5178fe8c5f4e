package millracetest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/millracetest"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

func TestEnqueuedReturnsAllJobsAndChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := millracetest.Queue(t)
		millracetest.RequireEmpty(t, q)
		want := orders(100)
		millracetest.Send(t, q, want...)
		for range 3 {
			if got := millracetest.Enqueued[Order](t, q); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		batch, err := q.Dequeue(t.Context(), 32, time.Hour)
		if err != nil || batch[0].DequeueCount != 1 {
			t.Fatalf("got %+v, %v; want a dequeue count of 1", batch, err)
		}
		millracetest.RequireEnqueued(t, q, want...) // leased ones too
		for _, m := range batch {
			if err := q.Delete(t.Context(), m.Lease); err != nil {
				t.Fatal(err)
			}
		}
		millracetest.RequireEnqueued(t, q, want[32:]...)
		if err := q.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		millracetest.RequireEmpty(t, q)
		if _, err := producer.New[Order](q, nil).Send(t.Context(), Order{}, &producer.SendOptions{TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute - time.Nanosecond)
		millracetest.RequireEnqueued(t, q, Order{})
		time.Sleep(time.Nanosecond)
		millracetest.RequireEmpty(t, q)
	})
}

func TestEnqueuedReadsWithACodec(t *testing.T) {
	q := millracetest.Queue(t)
	p := producer.New(q, &producer.Options[string]{Codec: codec.Text()})
	if _, err := p.Send(t.Context(), "not JSON", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Enqueue(t.Context(), "MTIz", nil); err != nil { // Base64 of 123
		t.Fatal(err)
	}
	if got := millracetest.Enqueued(t, q, codec.Text()); !slices.Equal(got, []string{"not JSON", "MTIz"}) {
		t.Errorf("got %q", got)
	}
}

func TestFailuresShowTheDifference(t *testing.T) {
	q := millracetest.Queue(t)
	millracetest.Send(t, q, Order{ID: "1"}, Order{ID: "2"}, Order{ID: "2"})
	requireParts(t, failureOf(t, func(t testing.TB) {
		millracetest.RequireEnqueued(t, q, Order{ID: "2"}, Order{ID: "3"})
	}), "millracetest: millracetest/jobs does not hold the 2 jobs expected:",
		"\n  missing:  {\"ID\":\"3\"}", "\n  too many: {\"ID\":\"1\"}\n  too many: {\"ID\":\"2\"}")
	requireParts(t, failureOf(t, func(t testing.TB) { millracetest.RequireEmpty(t, q) }),
		"millracetest/jobs holds 3 messages, want none:\n  millrace/1?id=")
	requireParts(t, failureOf(t, func(t testing.TB) { millracetest.Enqueued[int](t, q) }),
		"is not a job of this type", "decode JSON as int", "millrace/1?id=")
	requireParts(t, failureOf(t, func(t testing.TB) { millracetest.Send(t, q, make(chan int)) }), "millracetest: send to")

	if _, err := q.Enqueue(t.Context(), "millrace/2?new", nil); err != nil {
		t.Fatal(err)
	}
	requireParts(t, failureOf(t, func(t testing.TB) { millracetest.Enqueued[Order](t, q) }), "no listener can read", "newer version")
}

// A queue of another kind can only be peeked at. The failure says so.
func TestOtherQueuesArePeekedAt(t *testing.T) {
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "other", Queue: "jobs"})
	millracetest.RequireEmpty(t, q) // the queue does not exist
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	millracetest.Send(t, q, orders(32)...)
	millracetest.RequireEnqueued(t, q, orders(32)...)
	millracetest.Send(t, q, Order{})
	requireParts(t, failureOf(t, func(t testing.TB) { millracetest.Enqueued[Order](t, q) }), "other/jobs holds 33 messages, of which a peek shows 32")

	if _, err := q.Dequeue(t.Context(), 32, time.Hour); err != nil {
		t.Fatal(err)
	}
	requireParts(t, failureOf(t, func(t testing.TB) { millracetest.RequireEmpty(t, q) }), "holds 33 messages", "and 32 hidden")

	broken := &failingPeek{Queue: q}
	requireParts(t, failureOf(t, func(t testing.TB) { millracetest.RequireEmpty(t, broken) }), "millracetest: ", "broken")
}

// failingPeek is a queue whose peeks fail.
type failingPeek struct{ queue.Queue }

func (failingPeek) Peek(context.Context, int) ([]queue.Message, error) {
	return nil, errBroken
}
