package queue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
)

// The caller gives up, by itself or because its context ends. The server acts later, once, even if
// the process has died.
func TestLateRequestArrivesAfterItsCallerGaveUp(t *testing.T) {
	for name, after := range map[string]func(q *faultqueue.Queue, cancel func()){
		"by itself":     func(*faultqueue.Queue, func()) {},
		"by context":    func(_ *faultqueue.Queue, cancel func()) { time.AfterFunc(time.Millisecond, cancel) },
		"by its death":  func(q *faultqueue.Queue, _ func()) { time.AfterFunc(time.Millisecond, q.Kill) },
		"death, after":  func(q *faultqueue.Queue, _ func()) { time.AfterFunc(4*time.Second, q.Kill) },
		"context after": func(_ *faultqueue.Queue, cancel func()) { time.AfterFunc(4*time.Second, cancel) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := only(faultqueue.Enqueue, faultqueue.Rates{Late: 1})
				o.Latency = faultqueue.Range{Min: 2 * time.Second, Max: 3 * time.Second}
				o.LateBy = faultqueue.Range{Min: 10 * time.Second, Max: 20 * time.Second}
				q, inner := open(t, o)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				after(q, cancel)
				start := time.Now()
				m, err := q.Enqueue(ctx, "x", nil)
				if !errors.Is(err, queue.ErrOutcomeUnknown) || m.ID != "" || depth(t, inner) != 0 {
					t.Errorf("enqueue: got %+v, %v and depth %d; want ErrOutcomeUnknown and 0", m, err, depth(t, inner))
				}
				if took := time.Since(start); took >= 3*time.Second {
					t.Errorf("caller's wait: got %v, want less than 3 s", took)
				}
				q.Wait()
				if took := time.Since(start); took < 12*time.Second || took >= 23*time.Second || depth(t, inner) != 1 {
					t.Errorf("got depth %d after %v, want 1 after 12 s to 23 s", depth(t, inner), took)
				}
				trace := q.Trace()
				call, arrival := trace[len(trace)-2], trace[len(trace)-1]
				if call.Fault != faultqueue.Late || call.Error != "outcome unknown" || call.Message != "" {
					t.Errorf("call in the trace: got %+v, want late with an unknown outcome", call)
				}
				if arrival.Fault != faultqueue.Arrival || arrival.Error != "" || arrival.Message == "" || arrival.At != time.Since(start) {
					t.Errorf("arrival in the trace: got %+v, want one now with the message", arrival)
				}
			})
		})
	}
}

// A late update takes effect only if the message has not changed meanwhile.
func TestLateUpdateIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, inner := open(t, only(faultqueue.Update, faultqueue.Rates{Late: 1}))
		for _, text := range []string{"a", "b"} {
			if _, err := q.Enqueue(t.Context(), text, nil); err != nil {
				t.Fatal(err)
			}
		}
		batch, _ := q.Dequeue(t.Context(), 2, time.Hour)
		for _, m := range batch {
			if _, err := q.Update(t.Context(), m.Lease, "late", time.Hour); !errors.Is(err, queue.ErrOutcomeUnknown) {
				t.Fatal(err)
			}
		}
		if _, err := inner.Update(t.Context(), batch[0].Lease, "meanwhile", time.Hour); err != nil {
			t.Fatal(err)
		}
		q.Wait()
		outcomes := make(map[queue.ID]string)
		for _, c := range q.Trace() {
			if c.Fault == faultqueue.Arrival {
				outcomes[c.Message] = c.Error
			}
		}
		if len(outcomes) != 2 || outcomes[batch[0].ID] != "receipt is not the newest one" || outcomes[batch[1].ID] != "" {
			t.Errorf("errors of the late updates: got %v, want a receipt mismatch for the first only", outcomes)
		}
		time.Sleep(2 * time.Hour)
		seen, _ := inner.Peek(t.Context(), 2)
		if len(seen) != 2 || seen[0].Text == seen[1].Text {
			t.Errorf("peeked: got %+v, want two different texts", seen)
		}
	})
}

// A late request that arrives while the queue is missing fails.
func TestLateFindsTheQueueMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := only(faultqueue.Enqueue, faultqueue.Rates{Late: 1})
		o.LateBy = faultqueue.Range{Min: 5 * time.Second}
		o.Missing = faultqueue.Window{Within: 4 * time.Second, For: 10 * time.Second}
		var q *faultqueue.Queue
		var inner queue.Manager
		for found := false; !found; o.Seed++ { // a seed with which the queue goes missing after the request was sent
			q, inner = open(t, o)
			_, err := q.Enqueue(t.Context(), "x", nil)
			found = errors.Is(err, queue.ErrOutcomeUnknown)
		}
		q.Wait()
		trace := q.Trace()
		if last := trace[len(trace)-1]; last.Fault != faultqueue.Arrival || last.Error != "queue does not exist" || depth(t, inner) != 0 {
			t.Errorf("got the last call %+v and depth %d, want an arrival without a queue and 0", last, depth(t, inner))
		}
	})
}
