package faultqueue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
)

// open returns a queue that misbehaves and the well-behaved one inside, created.
func open(t *testing.T, o faultqueue.Options) (faulty *faultqueue.Queue, inner queue.Manager) {
	t.Helper()
	inner = localqueue.New(&localqueue.Options{Seed: 1}).Queue(queue.Name{Account: "local", Queue: "orders"})
	if err := inner.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	o.Record = true
	return faultqueue.New(inner, &o), inner
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

func TestFaultThatKeepsTheServerFromActing(t *testing.T) {
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
					t.Fatalf("error is %v", err)
				}
				if known.Op != "enqueue" || known.Queue != q.Name() || known.Status != c.status {
					t.Errorf("error is %v", err)
				}
				if took := time.Since(start); took < time.Millisecond || took >= 100*time.Millisecond {
					t.Errorf("it took %v, outside the default latency", took)
				}
				if n := depth(t, inner); n != 0 {
					t.Errorf("the server has acted: %d messages", n)
				}
				if _, err := q.Dequeue(t.Context(), 1, time.Second); err != nil {
					t.Errorf("an operation without faults failed: %v", err)
				}
			})
		})
	}
}

func TestLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, inner := open(t, only(faultqueue.Enqueue, faultqueue.Rates{LostAnswer: 1}))
		m, err := q.Enqueue(t.Context(), "x", nil)
		if !errors.Is(err, queue.ErrOutcomeUnknown) || m.ID != "" {
			t.Errorf("enqueue gave %+v, %v", m, err)
		}
		if n := depth(t, inner); n != 1 {
			t.Errorf("depth is %d: the server should have acted", n)
		}
	})
}

func TestLostAnswerToADequeueHidesTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, inner := open(t, only(faultqueue.Dequeue, faultqueue.Rates{LostAnswer: 1}))
		if _, err := q.Enqueue(t.Context(), "x", nil); err != nil {
			t.Fatal(err)
		}
		batch, err := q.Dequeue(t.Context(), 1, time.Minute)
		if !errors.Is(err, queue.ErrOutcomeUnknown) || batch != nil {
			t.Errorf("dequeue gave %v, %v", batch, err)
		}
		if seen, _ := inner.Peek(t.Context(), 1); len(seen) != 0 {
			t.Error("the message is not hidden")
		}
		time.Sleep(time.Minute)
		if again, _ := inner.Dequeue(t.Context(), 1, time.Minute); len(again) != 1 || again[0].DequeueCount != 2 {
			t.Errorf("after its visibility there is %+v", again)
		}
		trace := slices.DeleteFunc(q.Trace(), func(c faultqueue.Call) bool { return c.Op != faultqueue.Dequeue })
		if last := trace[len(trace)-1]; last.Fault != faultqueue.LostAnswer || last.Count != 1 || last.Error != "outcome unknown" {
			t.Errorf("trace says %+v", last)
		}
	})
}

// Something in between sends a request twice: the second answer is that of a request
// which the first has made stale.
func TestDuplicate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, inner := open(t, faultqueue.Options{Every: faultqueue.Rates{Duplicate: 1}})
		sent, err := q.Enqueue(t.Context(), "x", nil)
		if err != nil {
			t.Fatal(err)
		}
		if n := depth(t, inner); n != 2 {
			t.Errorf("depth is %d, want the message twice", n)
		}
		if err := inner.Delete(t.Context(), sent.Lease); err != nil {
			t.Errorf("the answer was not that of a message there is: %v", err)
		}
		batch, err := inner.Dequeue(t.Context(), 1, time.Minute)
		if err != nil || len(batch) != 1 {
			t.Fatal(batch, err)
		}
		if _, err := q.Update(t.Context(), batch[0].Lease, "y", 0); !errors.Is(err, queue.ErrReceiptMismatch) {
			t.Errorf("the second update found the receipt still the newest: %v", err)
		}
		if seen, _ := inner.Peek(t.Context(), 1); len(seen) != 1 || seen[0].Text != "y" {
			t.Errorf("the first did not take effect: %v", seen)
		}
		batch, _ = inner.Dequeue(t.Context(), 1, time.Minute)
		start := time.Now()
		if err := q.Delete(t.Context(), batch[0].Lease); !errors.Is(err, queue.ErrMessageGone) || depth(t, inner) != 0 {
			t.Errorf("the second delete found the message still there: %v", err)
		}
		if time.Since(start) == 0 {
			t.Error("it took no time")
		}
		trace := q.Trace()
		if last := trace[len(trace)-1]; last.Fault != faultqueue.Duplicate || last.Error != "message is gone" {
			t.Errorf("trace says %+v", last)
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
			t.Errorf("the second answer is %+v, %v", batch, err)
		}
		if seen, _ := inner.Peek(t.Context(), 1); len(seen) != 0 {
			t.Errorf("there is more: %+v", seen)
		}
	})
}

// The caller gives up, by itself or because its context ends; the server acts then, once,
// also when the process is dead by then.
func TestLate(t *testing.T) {
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
					t.Errorf("enqueue gave %+v, %v with %d messages there", m, err, depth(t, inner))
				}
				if took := time.Since(start); took >= 3*time.Second {
					t.Errorf("the caller waited %v", took)
				}
				q.Wait()
				if took := time.Since(start); took < 12*time.Second || took >= 23*time.Second || depth(t, inner) != 1 {
					t.Errorf("after %v there are %d messages", took, depth(t, inner))
				}
				trace := q.Trace()
				call, arrival := trace[len(trace)-2], trace[len(trace)-1]
				if call.Fault != faultqueue.Late || call.Error != "outcome unknown" || call.Message != "" {
					t.Errorf("the call is %+v", call)
				}
				if arrival.Fault != faultqueue.Arrival || arrival.Error != "" || arrival.Message == "" || arrival.At != time.Since(start) {
					t.Errorf("the arrival is %+v", arrival)
				}
			})
		})
	}
}

// An update that comes late takes effect if nothing else has happened to the message, and
// is refused if it has.
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
		said := make(map[queue.ID]string)
		for _, c := range q.Trace() {
			if c.Fault == faultqueue.Arrival {
				said[c.Message] = c.Error
			}
		}
		if len(said) != 2 || said[batch[0].ID] != "receipt is not the newest one" || said[batch[1].ID] != "" {
			t.Errorf("the late ones were answered %v", said)
		}
		time.Sleep(2 * time.Hour)
		seen, _ := inner.Peek(t.Context(), 2)
		if len(seen) != 2 || seen[0].Text == seen[1].Text {
			t.Errorf("there is %+v", seen)
		}
	})
}

// What arrives while the queue is away finds no queue.
func TestLateFindsTheQueueMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := only(faultqueue.Enqueue, faultqueue.Rates{Late: 1})
		o.LateBy = faultqueue.Range{Min: 5 * time.Second}
		o.Missing = faultqueue.Window{Within: 4 * time.Second, For: 10 * time.Second}
		var q *faultqueue.Queue
		var inner queue.Manager
		for found := false; !found; o.Seed++ { // one in which it goes away after the request has left
			q, inner = open(t, o)
			_, err := q.Enqueue(t.Context(), "x", nil)
			found = errors.Is(err, queue.ErrOutcomeUnknown)
		}
		q.Wait()
		trace := q.Trace()
		if last := trace[len(trace)-1]; last.Fault != faultqueue.Arrival || last.Error != "queue does not exist" || depth(t, inner) != 0 {
			t.Errorf("trace says %+v, and %d messages are there", last, depth(t, inner))
		}
	})
}

func TestSlow(t *testing.T) {
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
				t.Errorf("call %d took %v", i, took)
			}
			seen[took] = true
		}
		// A caller that gives up half-way does not know what came of it.
		for _, c := range []struct {
			patience time.Duration
			acted    int64
		}{{4 * time.Second, 0}, {9999 * time.Millisecond, 1}} {
			before := depth(t, inner)
			ctx, cancel := context.WithTimeout(t.Context(), c.patience)
			_, err := q.Enqueue(ctx, "x", nil)
			cancel()
			if !errors.Is(err, queue.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("after %v the error is %v", c.patience, err)
			}
			if acted := depth(t, inner) - before; acted > c.acted {
				t.Errorf("after %v %d messages were made", c.patience, acted)
			}
		}
	})
}

func TestMissingForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := open(t, faultqueue.Options{
			Missing: faultqueue.Window{Within: time.Minute, For: 10 * time.Second},
			Latency: faultqueue.Range{Min: 1}, // both queues are asked at the same instant, as good as
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
					t.Errorf("the sibling is there: %v", err)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		if missing < 40 || missing > 101 {
			t.Errorf("missing at %d of the instants, which are 0.1 s apart", missing)
		}
		if _, err := q.Peek(t.Context(), 1); err != nil {
			t.Errorf("after a minute and ten seconds: %v", err)
		}
	})
}

func TestSkew(t *testing.T) {
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
				t.Errorf("inserted is off by %v, want %v", got, skew)
			}
			if got := seen[0].Expires.Sub(plain[0].Expires); got != skew {
				t.Errorf("expires is off by %v, want %v", got, skew)
			}
			if !seen[1].Expires.Equal(plain[1].Expires) || !seen[0].Until.IsZero() {
				t.Errorf("never became %v, no time became %v", seen[1].Expires, seen[0].Until)
			}
			batch, _ := q.Dequeue(t.Context(), 1, time.Minute)
			if got := time.Until(batch[0].Until); (got - time.Minute - skew).Abs() > time.Second {
				t.Errorf("until is %v from now", got)
			}
			l, _ := q.Update(t.Context(), batch[0].Lease, "x", time.Minute)
			if got := time.Until(l.Until); (got - time.Minute - skew).Abs() > time.Second {
				t.Errorf("until of an update is %v from now", got)
			}
		}
	})
}

func TestDeath(t *testing.T) {
	acted := 0
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			q, inner := open(t, faultqueue.Options{Seed: seed, DieAfter: 20})
			ok := 0
			for {
				_, err := q.Enqueue(t.Context(), "x", nil)
				if err != nil {
					if !errors.Is(err, faultqueue.ErrDead) || !errors.Is(err, queue.ErrOutcomeUnknown) {
						t.Fatal(err)
					}
					break
				}
				ok++
			}
			if ok >= 20 {
				t.Errorf("%d calls succeeded", ok)
			}
			select {
			case <-q.Died():
			default:
				t.Error("death was not announced")
			}
			extra := int(depth(t, inner)) - ok
			if extra != 0 && extra != 1 {
				t.Errorf("%d calls succeeded and %d messages are there", ok, ok+extra)
			}
			acted += extra
			if _, err := q.Sibling("-poison").Enqueue(t.Context(), "x", nil); !errors.Is(err, faultqueue.ErrDead) {
				t.Errorf("the sibling lives: %v", err)
			}
			if n := int(depth(t, inner)) - ok - extra; n != 0 {
				t.Errorf("%d messages were made after death", n)
			}
		})
	}
	if acted == 0 || acted == 40 {
		t.Errorf("%d of 40 processes died after the server had acted: want some of both", acted)
	}
}

func TestKillEndsCallsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := faultqueue.Options{UsualLatency: faultqueue.Range{Min: time.Minute}}
		q, _ := open(t, o)
		failed := make(chan error)
		go func() {
			_, err := q.Enqueue(t.Context(), "x", nil)
			failed <- err
		}()
		synctest.Wait()
		start := time.Now()
		q.Kill()
		q.Kill()
		if err := <-failed; !errors.Is(err, faultqueue.ErrDead) || time.Since(start) != 0 {
			t.Errorf("%v after the death the call failed with %v", time.Since(start), err)
		}
	})
}

// run works through messages with several workers at once, whatever goes wrong,
// and returns the trace.
func run(t *testing.T, seed uint64) (trace []faultqueue.Call) {
	synctest.Test(t, func(t *testing.T) {
		q, inner := open(t, faultqueue.Options{
			Seed:    seed,
			Every:   faultqueue.Rates{Throttled: 0.1, Unavailable: 0.05, LostRequest: 0.1, LostAnswer: 0.1, Duplicate: 0.05, Slow: 0.05, Late: 0.05},
			Missing: faultqueue.Window{Within: 5 * time.Second, For: 5 * time.Second},
			// Without latency the interleaving of equal instants would show.
			UsualLatency: faultqueue.Range{Min: time.Millisecond, Max: time.Second},
		})
		var all sync.WaitGroup
		for worker := range 4 {
			all.Go(func() {
				for i := range 20 {
					for {
						if _, err := q.Enqueue(t.Context(), fmt.Sprintf("%d of %d", i, worker), nil); err == nil {
							break
						}
						time.Sleep(time.Second)
					}
				}
			})
		}
		all.Wait()
		for worker := range 4 {
			all.Go(func() {
				time.Sleep(time.Duration(worker) * time.Millisecond)
				for depth(t, inner) > 0 {
					batch, _ := q.Dequeue(t.Context(), 8, 30*time.Second)
					for _, m := range batch {
						_ = q.Delete(t.Context(), m.Lease)
					}
					if len(batch) == 0 {
						time.Sleep(time.Second)
					}
				}
			})
		}
		all.Wait()
		q.Wait()
		trace = q.Trace()
	})
	return trace
}

func TestSeedReplays(t *testing.T) {
	first := run(t, 7)
	if again := run(t, 7); !slices.Equal(first, again) {
		for i := range min(len(first), len(again)) {
			if first[i] != again[i] {
				t.Fatalf("call %d of %d and %d differs:\n%+v\n%+v", i, len(first), len(again), first[i], again[i])
			}
		}
		t.Fatalf("%d calls, then %d", len(first), len(again))
	}
	if other := run(t, 8); slices.Equal(first, other) {
		t.Error("another seed gives the same run")
	}
	faults := make(map[faultqueue.Fault]int)
	for _, c := range first {
		faults[c.Fault]++
	}
	for _, f := range []faultqueue.Fault{"", faultqueue.Throttled, faultqueue.Unavailable, faultqueue.LostRequest, faultqueue.LostAnswer, faultqueue.Duplicate, faultqueue.Slow, faultqueue.Late, faultqueue.Arrival, faultqueue.Missing} {
		if faults[f] == 0 {
			t.Errorf("fault %q never happened in %d calls", f, len(first))
		}
	}
}

// The fate of calls does not depend on the order in which they are made.
func TestFaultsAreIndependentOfTheOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		list := make([]string, 12)
		for i := range list {
			list[i] = strconv.Itoa(i % 6) // each twice
		}
		order := rapid.Permutation(list).Draw(rt, "order")
		fates := func(texts []string) map[string][]faultqueue.Fault {
			var all map[string][]faultqueue.Fault
			synctest.Test(t, func(t *testing.T) {
				q, _ := open(t, faultqueue.Options{Seed: seed, Every: faultqueue.Rates{Throttled: 0.3, LostRequest: 0.3}, UsualLatency: faultqueue.Range{Min: 1}})
				all = make(map[string][]faultqueue.Fault)
				for _, text := range texts {
					_, _ = q.Enqueue(t.Context(), text, nil)
					trace := q.Trace()
					all[text] = append(all[text], trace[len(trace)-1].Fault)
				}
			})
			return all
		}
		one, other := fates(list), fates(order)
		for text := range one {
			if !slices.Equal(one[text], other[text]) {
				rt.Errorf("%q: %v in one order, %v in another", text, one[text], other[text])
			}
		}
	})
}

func TestRatesAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, _ := open(t, faultqueue.Options{Seed: 3, Every: faultqueue.Rates{Throttled: 0.2, LostAnswer: 0.1}})
		const calls = 4000
		for range calls {
			_, _ = q.Peek(t.Context(), 1)
		}
		count := make(map[faultqueue.Fault]int)
		for _, c := range q.Trace() {
			count[c.Fault]++
		}
		if n := count[faultqueue.Throttled]; n < calls*17/100 || n > calls*23/100 {
			t.Errorf("%d of %d calls were throttled at a rate of 0.2", n, calls)
		}
		if n := count[faultqueue.LostAnswer]; n < calls*8/100 || n > calls*12/100 {
			t.Errorf("%d of %d answers were lost at a rate of 0.1", n, calls)
		}
	})
}

// A queue that cannot be administered stays one.
func TestQueueThatIsNoManager(t *testing.T) {
	type plain struct{ queue.Queue }
	synctest.Test(t, func(t *testing.T) {
		_, inner := open(t, faultqueue.Options{})
		q := faultqueue.New(plain{inner}, nil)
		for _, err := range []error{q.Clear(t.Context()), q.Drop(t.Context()), q.SetMetadata(t.Context(), nil)} {
			if !errors.Is(err, queue.ErrInvalid) {
				t.Errorf("error is %v", err)
			}
		}
	})
}

// Whether and in which call the process dies depends on what the call is about, not on
// how many there were before; half of those calls act.
func TestDeathByRate(t *testing.T) {
	acted := make(map[bool]int)
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			o := only(faultqueue.Enqueue, faultqueue.Rates{Death: 1})
			o.Seed = seed
			q, inner := open(t, o)
			start := time.Now()
			if _, err := q.Enqueue(t.Context(), "x", nil); !errors.Is(err, faultqueue.ErrDead) || !errors.Is(err, queue.ErrOutcomeUnknown) {
				t.Errorf("error is %v", err)
			}
			if time.Since(start) == 0 {
				t.Error("the process died before the request was on its way")
			}
			select {
			case <-q.Died():
			default:
				t.Error("the process lives")
			}
			if _, err := q.Dequeue(t.Context(), 1, time.Second); !errors.Is(err, faultqueue.ErrDead) {
				t.Errorf("after its death: %v", err)
			}
			acted[depth(t, inner) == 1]++
		})
	}
	if acted[true] < 60 || acted[false] < 60 {
		t.Errorf("of 200 calls %d acted and %d did not", acted[true], acted[false])
	}
}
