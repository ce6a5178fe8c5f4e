package queue_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
)

// open returns a queue with faults and its inner queue, which it creates.
func open(t *testing.T, o faultqueue.Options) (faulty *faultqueue.Queue, inner queue.Manager) {
	t.Helper()
	inner = must(localqueue.New(&localqueue.Options{Seed: 1})).Queue(queue.Name{Account: "local", Queue: "orders"})
	if err := inner.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	o.Record = true
	return must(faultqueue.New(inner, &o)), inner
}

func depth(t *testing.T, q queue.Queue) int64 {
	t.Helper()
	p, err := q.Properties(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return p.Depth
}

func only(op faultqueue.Op, r faultqueue.Rates) faultqueue.Options {
	return faultqueue.Options{Faults: map[faultqueue.Op]faultqueue.Rates{op: r}}
}

func TestFaultsThatPreventTheCall(t *testing.T) {
	for name, c := range map[string]struct {
		rates  faultqueue.Rates
		kind   error
		status int
	}{
		"throttled":    {faultqueue.Rates{Throttled: 1}, queue.ErrThrottled, 503},
		"unavailable":  {faultqueue.Rates{Unavailable: 1}, queue.ErrUnavailable, 500},
		"lost request": {faultqueue.Rates{LostRequest: 1}, queue.ErrOutcomeUnknown, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q, inner := open(t, only(faultqueue.Enqueue, c.rates))
				start := time.Now()
				_, err := q.Enqueue(t.Context(), "x", nil)
				known := (*queue.Error)(nil)
				if !errors.Is(err, c.kind) || !errors.As(err, &known) {
					t.Fatalf("error: got %v, want %v", err, c.kind)
				}
				if known.Op != "enqueue" || known.Queue != q.Name() || known.Status != c.status {
					t.Errorf("error: got %v, want status %d and the operation and queue", err, c.status)
				}
				if took := time.Since(start); took < time.Millisecond || took >= 100*time.Millisecond {
					t.Errorf("latency: got %v, want the default of 1 ms to 100 ms", took)
				}
				if n := depth(t, inner); n != 0 {
					t.Errorf("depth: got %d, want 0", n)
				}
				if _, err := q.Dequeue(t.Context(), 1, time.Second); err != nil {
					t.Errorf("operation without faults: got %v, want success", err)
				}
			})
		})
	}
}

func TestLostResponseAfterTheServerActed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, inner := open(t, only(faultqueue.Enqueue, faultqueue.Rates{LostResponse: 1}))
		m, err := q.Enqueue(t.Context(), "x", nil)
		if !errors.Is(err, queue.ErrOutcomeUnknown) || m.ID != "" {
			t.Errorf("enqueue: got %+v, %v; want ErrOutcomeUnknown", m, err)
		}
		if n := depth(t, inner); n != 1 {
			t.Errorf("depth: got %d, want 1", n)
		}
	})
}

func TestLostDequeueResponseHidesTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, inner := open(t, only(faultqueue.Dequeue, faultqueue.Rates{LostResponse: 1}))
		if _, err := q.Enqueue(t.Context(), "x", nil); err != nil {
			t.Fatal(err)
		}
		batch, err := q.Dequeue(t.Context(), 1, time.Minute)
		if !errors.Is(err, queue.ErrOutcomeUnknown) || batch != nil {
			t.Errorf("dequeue: got %v, %v; want ErrOutcomeUnknown", batch, err)
		}
		if seen, _ := inner.Peek(t.Context(), 1); len(seen) != 0 {
			t.Error("the message is visible, want it hidden")
		}
		time.Sleep(time.Minute)
		if again, _ := inner.Dequeue(t.Context(), 1, time.Minute); len(again) != 1 || again[0].DequeueCount != 2 {
			t.Errorf("dequeue after the visibility: got %+v, want the message with count 2", again)
		}
		trace := slices.DeleteFunc(q.Trace(), func(c faultqueue.Call) bool { return c.Op != faultqueue.Dequeue })
		if last := trace[len(trace)-1]; last.Fault != faultqueue.LostResponse || last.Count != 1 || last.Error != "outcome unknown" {
			t.Errorf("last call in the trace: got %+v, want a lost response with count 1", last)
		}
	})
}

// A proxy sends a request twice. The second response is that to a request which the first one has
// made stale.
func TestDuplicateReturnsTheSecondResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, inner := open(t, faultqueue.Options{Every: faultqueue.Rates{Duplicate: 1}})
		sent, err := q.Enqueue(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := depth(t, inner); n != 2 {
			t.Errorf("depth: got %d, want 2", n)
		}
		if err := inner.Delete(t.Context(), sent.Lease); err != nil {
			t.Errorf("delete with the lease returned: got %v, want success", err)
		}
		batch, err := inner.Dequeue(t.Context(), 1, time.Minute)
		if err != nil || len(batch) != 1 {
			t.Fatal(batch, err)
		}
		if _, err := q.Update(t.Context(), batch[0].Lease, "y", 0); !errors.Is(err, queue.ErrReceiptMismatch) {
			t.Errorf("update: got %v, want ErrReceiptMismatch of the second request", err)
		}
		if seen, _ := inner.Peek(t.Context(), 1); len(seen) != 1 || seen[0].Text != "y" {
			t.Errorf("peeked: got %v, want the text of the first update", seen)
		}
		batch, _ = inner.Dequeue(t.Context(), 1, time.Minute)
		start := time.Now()
		if err := q.Delete(t.Context(), batch[0].Lease); !errors.Is(err, queue.ErrMessageGone) || depth(t, inner) != 0 {
			t.Errorf("delete: got %v, want ErrMessageGone of the second request", err)
		}
		if time.Since(start) == 0 {
			t.Error("duplicate: got no latency, want some")
		}
		trace := q.Trace()
		if last := trace[len(trace)-1]; last.Fault != faultqueue.Duplicate || last.Error != "message is gone" {
			t.Errorf("last call in the trace: got %+v, want a duplicate with message is gone", last)
		}
	})
}

func TestDuplicateOfADequeueHidesABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, inner := open(t, only(faultqueue.Dequeue, faultqueue.Rates{Duplicate: 1}))
		for i := range 3 {
			if _, err := q.Enqueue(t.Context(), strconv.Itoa(i), nil); err != nil {
				t.Fatal(err)
			}
		}
		batch, err := q.Dequeue(t.Context(), 2, time.Minute)
		if err != nil || len(batch) != 1 || batch[0].Text != "2" {
			t.Errorf("dequeue: got %+v, %v; want message 2 of the second request", batch, err)
		}
		if seen, _ := inner.Peek(t.Context(), 1); len(seen) != 0 {
			t.Errorf("peeked: got %+v, want nothing visible", seen)
		}
	})
}

func TestSlowCallsSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := only(faultqueue.Enqueue, faultqueue.Rates{Slow: 1})
		o.SlowLatency = faultqueue.Range{Min: 10 * time.Second, Max: 20 * time.Second}
		q, inner := open(t, o)
		seen := make(map[time.Duration]bool)
		for i := range 50 {
			start := time.Now()
			if _, err := q.Enqueue(t.Context(), strconv.Itoa(i), nil); err != nil {
				t.Fatal(err)
			}
			took := time.Since(start)
			if took < 10*time.Second || took >= 20*time.Second || seen[took] {
				t.Errorf("latency of call %d: got %v, want its own of 10 s to 20 s", i, took)
			}
			seen[took] = true
		}
		// A caller that gives up half-way does not know the outcome.
		for _, c := range []struct {
			patience time.Duration
			acted    int64
		}{{4 * time.Second, 0}, {9999 * time.Millisecond, 1}} {
			before := depth(t, inner)
			ctx, cancel := context.WithTimeout(t.Context(), c.patience)
			_, err := q.Enqueue(ctx, "x", nil)
			cancel()
			if !errors.Is(err, queue.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after %v: got %v, want ErrOutcomeUnknown and DeadlineExceeded", c.patience, err)
			}
			if acted := depth(t, inner) - before; acted > c.acted {
				t.Errorf("after %v: got %d new messages, want at most %d", c.patience, acted, c.acted)
			}
		}
	})
}

func TestMissingForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := open(t, faultqueue.Options{
			Missing: faultqueue.Window{Within: time.Minute, For: 10 * time.Second},
			Latency: faultqueue.Range{Min: 1}, // both queues are called at practically the same instant
		})
		s := q.Sibling("-poison")
		if err := s.Create(t.Context(), nil); err != nil && !errors.Is(err, queue.ErrQueueMissing) {
			t.Fatal(err)
		}
		missing := 0
		for range 700 {
			_, err := q.Peek(t.Context(), 1)
			if errors.Is(err, queue.ErrQueueMissing) {
				missing++
				if _, err := s.Peek(t.Context(), 1); !errors.Is(err, queue.ErrQueueMissing) {
					t.Errorf("peek of the sibling: got %v, want ErrQueueMissing", err)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if missing < 40 || missing > 101 {
			t.Errorf("missing: got %d calls, 0.1 s apart, want 40 to 101", missing)
		}
		if _, err := q.Peek(t.Context(), 1); err != nil {
			t.Errorf("peek after 70 s: got %v, want success", err)
		}
	})
}

func TestSkewShiftsTheTimesShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, skew := range []time.Duration{-3 * time.Minute, 90 * time.Second} {
			q, inner := open(t, faultqueue.Options{Skew: skew})
			sent, err := q.Enqueue(t.Context(), "x", &queue.EnqueueOptions{TTL: time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := q.Enqueue(t.Context(), "forever", nil); err != nil {
				t.Fatal(err)
			}
			plain, _ := inner.Peek(t.Context(), 2)
			seen, _ := q.Peek(t.Context(), 2)
			if got := sent.Inserted.Sub(plain[0].Inserted); got != skew {
				t.Errorf("skew of Inserted: got %v, want %v", got, skew)
			}
			if got := seen[0].Expires.Sub(plain[0].Expires); got != skew {
				t.Errorf("skew of Expires: got %v, want %v", got, skew)
			}
			if !seen[1].Expires.Equal(plain[1].Expires) || !seen[0].Until.IsZero() {
				t.Errorf("got Expires %v and Until %v, want never and no time unchanged", seen[1].Expires, seen[0].Until)
			}
			batch, _ := q.Dequeue(t.Context(), 1, time.Minute)
			if got := time.Until(batch[0].Until); (got - time.Minute - skew).Abs() > time.Second {
				t.Errorf("Until of a dequeue: got %v from now, want a minute and the skew", got)
			}
			l, _ := q.Update(t.Context(), batch[0].Lease, "x", time.Minute)
			if got := time.Until(l.Until); (got - time.Minute - skew).Abs() > time.Second {
				t.Errorf("Until of an update: got %v from now, want a minute and the skew", got)
			}
		}
	})
}

// A queue that is not a Manager refuses the management operations.
func TestQueueWithoutManagement(t *testing.T) {
	type plain struct{ queue.Queue }
	synctest.Test(t, func(t *testing.T) {
		_, inner := open(t, faultqueue.Options{})
		q := must(faultqueue.New(plain{inner}, nil))
		for _, err := range []error{q.Clear(t.Context()), q.Drop(t.Context()), q.SetMetadata(t.Context(), nil)} {
			if !errors.Is(err, queue.ErrInvalid) {
				t.Errorf("error: got %v, want ErrInvalid", err)
			}
		}
	})
}

func TestFaultQueueRefusesInvalidOptions(t *testing.T) {
	inner := must(localqueue.New(nil)).Queue(queue.Name{Account: "local", Queue: "orders"})
	type faults = map[faultqueue.Op]faultqueue.Rates
	for want, o := range map[string]faultqueue.Options{
		`Options.Every: the rate of "late" is -1`:                           {Every: faultqueue.Rates{Late: -1}},
		`Options.Every: the rate of "death" is NaN`:                         {Every: faultqueue.Rates{Death: math.NaN()}},
		`Options.Faults["peek"]: the rate of "throttled" is 1.5`:            {Faults: faults{faultqueue.Peek: {Throttled: 1.5}}},
		`Options.Faults["fetch"]: unknown operation: use one of ["enqueue"`: {Faults: faults{"fetch": {}}},
		`Options.Phases[1].Faults["drop"]: the rate of "slow" is 2`:         {Phases: []faultqueue.Phase{{}, {Faults: faults{faultqueue.Drop: {Slow: 2}}}}},
	} {
		if _, err := faultqueue.New(inner, &o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %s", err, want)
		}
	}
}
