package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
	"github.com/millrace/millrace/queue/limits"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/metered"
	"github.com/millrace/millrace/queue/paired"
	"github.com/millrace/millrace/queue/queuetest"
	"github.com/millrace/millrace/wakeup"
)

// sending is one thing that reached the queue underneath.
type sending struct {
	at       time.Time
	op       string
	messages int
}

// recorder is a queue that records what reaches it.
type recorder struct {
	queue.Manager
	mu     sync.Mutex
	sent   []sending // guarded by mu
	refuse error     // of dequeues; set before use
	took   time.Duration
}

func (r *recorder) note(op string, messages int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, sending{time.Now(), op, messages})
}

func (r *recorder) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if ctx.Err() == nil {
		r.note("enqueue", 1)
	}
	return r.Manager.Enqueue(ctx, text, o)
}

func (r *recorder) Dequeue(ctx context.Context, n int, v time.Duration) ([]queue.Message, error) {
	if r.refuse != nil {
		return nil, r.refuse
	}
	begin := time.Now()
	time.Sleep(r.took)
	batch, err := r.Manager.Dequeue(ctx, n, v)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, sending{begin, "dequeue", len(batch)})
	return batch, err
}

func (r *recorder) Delete(ctx context.Context, l queue.Lease) error {
	r.note("delete", 1)
	return r.Manager.Delete(ctx, l)
}

// count returns how many requests and messages of the operations were sent.
func (r *recorder) count(ops ...string) (requests, messages int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.sent {
		for _, op := range ops {
			if s.op == op {
				requests++
				messages += s.messages
			}
		}
	}
	return requests, messages
}

// setup returns a recorded queue with n messages, and the queue that is held to the limit.
func setup(t testing.TB, n int, o *limits.ProcessOptions) (*recorder, queue.Queue) {
	t.Helper()
	inner := must(localqueue.New(nil)).Queue(queue.Name{Account: "acme", Queue: "jobs"})
	if err := inner.Create(context.Background(), nil); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if _, err := inner.Enqueue(context.Background(), fmt.Sprint(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	l, err := limits.NewProcess(o)
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{Manager: inner}
	return r, l.Wrap(r)
}

// A queue under a limit that is never reached behaves as the queue does.
func TestConformance(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{
		Bubble: true,
		Open: func(t *testing.T, name string) queue.Manager {
			l, err := limits.NewProcess(&limits.ProcessOptions{Messages: 1e9, Requests: 1e9})
			if err != nil {
				t.Fatal(err)
			}
			return l.Wrap(must(localqueue.New(nil)).Queue(queue.Name{Account: "local", Queue: name})).(queue.Manager)
		},
	})
}

func TestALimitThatMakesNoSenseIsRefused(t *testing.T) {
	for _, o := range []*limits.ProcessOptions{
		nil, {}, {Messages: -1}, {Requests: math.NaN()}, {Messages: math.Inf(1)}, {Messages: 1, Burst: -1},
	} {
		if l, err := limits.NewProcess(o); err == nil || l != nil {
			t.Errorf("%+v: got no error", o)
		}
	}
}

// trail is what was sent, for errors.
func trail(sent []sending) (text string) {
	for _, s := range sent {
		text += fmt.Sprintf("%s %s of %d; ", s.at.Format("05.0000"), s.op, s.messages)
	}
	return text
}

// fetch dequeues until the end, and waits as it is told.
func fetch(t *testing.T, q queue.Queue, until time.Time) {
	for time.Now().Before(until) {
		batch, err := q.Dequeue(context.Background(), queue.MaxBatch, time.Hour)
		limit := (*queue.Error)(nil)
		switch {
		case err == nil && len(batch) == 0:
			time.Sleep(5 * time.Millisecond)
		case errors.Is(err, queue.ErrLimited) && errors.As(err, &limit):
			time.Sleep(limit.RetryAfter + time.Duration(1+time.Now().UnixNano()%7)*time.Millisecond)
		case err != nil:
			t.Error(err)
			return
		}
	}
}

// B-18: whatever a process sends and receives, by however many goroutines and queues, no time has more of it
// than the rate and the burst allow.
func TestNoWindowHasMoreThanTheLimit(t *testing.T) {
	suitetest.Checks(t, 30)
	rapid.Check(t, func(rt *rapid.T) {
		perSecond := rapid.SampledFrom([]float64{0.5, 3, 20, 100, 2000}).Draw(rt, "messages")
		burst := rapid.SampledFrom([]time.Duration{10 * time.Millisecond, time.Second, 5 * time.Second}).Draw(rt, "burst")
		took := rapid.SampledFrom([]time.Duration{0, 30 * time.Millisecond, 2 * time.Second}).Draw(rt, "took")
		fetchers, senders := rapid.IntRange(1, 4).Draw(rt, "fetchers"), rapid.IntRange(0, 3).Draw(rt, "senders")
		stock := rapid.SampledFrom([]int{0, 50, 5000}).Draw(rt, "stock")
		synctest.Test(t, func(t *testing.T) {
			r, q := setup(t, stock, &limits.ProcessOptions{Messages: perSecond, Burst: burst})
			r.took = took
			end := time.Now().Add(20 * time.Second)
			var all sync.WaitGroup
			for range fetchers {
				all.Go(func() { fetch(t, q, end) })
			}
			for range senders {
				all.Go(func() {
					ctx, cancel := context.WithDeadline(context.Background(), end)
					defer cancel()
					for {
						if _, err := q.Enqueue(ctx, "text", nil); err != nil {
							return
						}
						if took > 0 {
							time.Sleep(took / 10)
						}
					}
				})
			}
			all.Wait()
			for i, first := range r.sent {
				sum := 0
				for _, s := range r.sent { // those of slow dequeues are noted late
					if !s.at.Before(first.at) && s.at.Sub(first.at) <= time.Second {
						sum += s.messages
					}
				}
				if most := max(perSecond*burst.Seconds(), 1) + perSecond; float64(sum) > most+1e-6 {
					t.Fatalf("sending %d begins a second with %d messages, want at most %v: %v", i, sum, most, trail(r.sent[max(i-2, 0):min(i+10, len(r.sent))]))
				}
				if i > 200 {
					break
				}
			}
		})
	})
}

// Under full demand what the limit allows is used, with full batches, also when a dequeue takes long.
func TestALimitIsUsedInFull(t *testing.T) {
	for _, took := range []time.Duration{0, 200 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			r, q := setup(t, 20_000, &limits.ProcessOptions{Messages: 100})
			r.took = took
			end := time.Now().Add(time.Minute)
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() { fetch(t, q, end) })
			}
			all.Wait()
			requests, messages := r.count("dequeue")
			if messages < 5900 || messages > 6100 || requests > 200 {
				t.Errorf("got %d messages in %d dequeues of a minute, want about 6000 in 188", messages, requests)
			}
		})
	}
}

// A low limit does not wait for a full batch.
func TestALowLimitIsSpreadOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, q := setup(t, 100, &limits.ProcessOptions{Messages: 2, Burst: time.Minute})
		fetch(t, q, time.Now().Add(30*time.Second)) // the burst, and what comes
		last := time.Now()
		for _, s := range r.sent {
			if s.messages > 2 {
				t.Errorf("a dequeue asked for %d messages, want no more than those of a second", s.messages)
			}
			last = s.at
		}
		if time.Since(last) > 2*time.Second {
			t.Error("the dequeues ended early")
		}
	})
}

// Dequeues that find nothing cost requests and no messages.
func TestWhatADequeueDoesNotFindIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := setup(t, 0, &limits.ProcessOptions{Messages: 40, Requests: 1000})
		for i := range 500 {
			if _, err := q.Dequeue(t.Context(), 30, time.Minute); err != nil {
				t.Fatalf("empty dequeue %d: %v", i, err)
			}
		}
	})
}

// Enqueues that never stop do not starve dequeues, nor the other way round.
func TestEnqueuesAndDequeuesShareALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, q := setup(t, 50_000, &limits.ProcessOptions{Messages: 100})
		end := time.Now().Add(time.Minute)
		ctx, cancel := context.WithDeadline(t.Context(), end)
		defer cancel()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				for {
					if _, err := q.Enqueue(ctx, "text", nil); err != nil {
						return
					}
				}
			})
		}
		all.Go(func() { fetch(t, q, end) })
		all.Wait()
		_, sent := r.count("enqueue")
		_, received := r.count("dequeue")
		if sent < 1500 || received < 1500 || sent+received > 6100 {
			t.Errorf("sent %d and received %d in a minute of 6000, want both", sent, received)
		}
	})
}

// Renewals and deletes are not held back, and dequeues pay for them.
func TestWhatHoldsALeaseIsNotHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		_, q := setup(t, 60, &limits.ProcessOptions{Requests: 10})
		batch, err := q.Dequeue(t.Context(), 32, time.Hour)
		if err != nil || len(batch) != 32 {
			t.Fatalf("got %d messages, error %v", len(batch), err)
		}
		for i := range batch {
			fresh, err := q.Update(t.Context(), batch[i].Lease, batch[i].Text, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if err := q.Delete(t.Context(), fresh); err != nil {
				t.Fatal(err)
			}
		}
		if time.Since(begin) != 0 {
			t.Errorf("settled after %v, want at once", time.Since(begin))
		}
		_, err = q.Dequeue(t.Context(), 32, time.Hour)
		limit := (*queue.Error)(nil)
		if !errors.Is(err, queue.ErrLimited) || !errors.As(err, &limit) || limit.RetryAfter < 5500*time.Millisecond || limit.RetryAfter > 6500*time.Millisecond {
			t.Fatalf("got error %v, want a wait for the 65 requests of which the burst had 7", err)
		}
		time.Sleep(limit.RetryAfter)
		if _, err := q.Dequeue(t.Context(), 32, time.Hour); err != nil {
			t.Errorf("after the wait: %v", err)
		}
	})
}

// An enqueue that cannot be sent in time says so at once and sends nothing; one whose context is
// cancelled ends, and its turn goes to others.
func TestAnEnqueueWaitsWithinItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		r, q := setup(t, 0, &limits.ProcessOptions{Messages: 0.1})
		if _, err := q.Enqueue(t.Context(), "first", nil); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := q.Enqueue(ctx, "late", nil)
		if !errors.Is(err, queue.ErrLimited) || errors.Is(err, queue.ErrOutcomeUnknown) || time.Since(begin) != 0 {
			t.Errorf("got error %v after %v, want a limit at once", err, time.Since(begin))
		}
		cancelled, stop := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, stop)
		_, err = q.Enqueue(cancelled, "cancelled", nil)
		if !errors.Is(err, context.Canceled) || errors.Is(err, queue.ErrOutcomeUnknown) || time.Since(begin) != 3*time.Second {
			t.Errorf("got error %v after %v, want that of the context after 3 s", err, time.Since(begin))
		}
		if _, err := q.Enqueue(t.Context(), "second", nil); err != nil || time.Since(begin) != 10*time.Second {
			t.Errorf("got error %v after %v, want success after 10 s", err, time.Since(begin))
		}
		if n, _ := r.count("enqueue"); n != 2 {
			t.Errorf("%d enqueues were sent, want 2", n)
		}
	})
}

// A limit within a limit that refuses costs the outer one nothing.
func TestLimitsCanBeNested(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, q := setup(t, 100, &limits.ProcessOptions{Messages: 40, Requests: 40})
		r.refuse = &queue.Error{Kind: queue.ErrLimited, Op: "dequeue", RetryAfter: time.Minute}
		for range 100 {
			if _, err := q.Dequeue(t.Context(), 30, time.Minute); !errors.Is(err, queue.ErrLimited) {
				t.Fatal(err)
			}
		}
		r.refuse = nil
		batch, err := q.Dequeue(t.Context(), 30, time.Minute)
		if err != nil || len(batch) != 30 {
			t.Errorf("got %d messages, error %v; want 30", len(batch), err)
		}
	})
}

// Queues and their siblings share the limit, and a queue that can be administered still can.
func TestQueuesShareALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, q := setup(t, 100, &limits.ProcessOptions{Messages: 40})
		poison := q.Sibling("-poison").(queue.Manager)
		if err := poison.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := q.Dequeue(t.Context(), 30, time.Minute); err != nil {
			t.Fatal(err)
		}
		if _, err := poison.Dequeue(t.Context(), 30, time.Minute); !errors.Is(err, queue.ErrLimited) {
			t.Errorf("got error %v, want a limit", err)
		}
		if _, ok := q.(interface{ Unwrap() queue.Queue }).Unwrap().(*recorder); !ok {
			t.Error("Unwrap does not return the queue underneath")
		}
	})
}

// B-18: a listener keeps to the limit, uses it, reports nothing, and loses nothing.
func TestAListenerKeepsToALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 6000
		r, q := setup(t, jobs, &limits.ProcessOptions{Messages: 200}) // each job is got and deleted
		var handled, failed atomic.Int64
		l := listener.New(q, func(context.Context, *listener.Message[int]) error { handled.Add(1); return nil }, &listener.Options[int]{
			Concurrency: 200, OnError: func(error) { failed.Add(1) }, Logger: slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithTimeout(t.Context(), 62*time.Second)
		defer cancel()
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
		requests, _ := r.count("dequeue")
		if n := handled.Load(); n < jobs*95/100 || failed.Load() != 0 || requests > 400 {
			t.Errorf("%d of %d jobs handled in a minute by %d dequeues, %d errors", n, jobs, requests, failed.Load())
		}
	})
}

// A short batch under a limit shows what it shows without, unless the limit has cut it.
func TestABatchThatALimitCutsShowsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c, r := limits.Concurrency{Jobs: 8, PerToken: 2}, limits.Rate{Jobs: 100, Window: time.Minute, PerToken: 2}
		others := b.engine.Queue(queue.Name{Account: "acme", Queue: "others"})
		if err := errors.Join(c.Init(t.Context(), b.tokens), r.Init(t.Context(), others)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		atOnce, _ := b.open(c, b.tokens)
		inWindow, err := r.Open(t.Context(), others)
		each, err2 := limits.NewProcess(&limits.ProcessOptions{Messages: 1000, Burst: 4 * time.Millisecond})
		if err := errors.Join(err, err2); err != nil {
			t.Fatal(err)
		}
		for name, q := range map[string]queue.Queue{
			"concurrency": atOnce.Wrap(b.jobs), "rate": inWindow.Wrap(b.jobs), "metered rate": new(metered.Meter).Wrap(inWindow.Wrap(b.jobs)), "limited": each.Wrap(b.jobs),
		} {
			for _, jobs := range []int{1, 32} {
				b.put(jobs)
				time.Sleep(time.Second)
				batch, err := q.Dequeue(t.Context(), queue.MaxBatch, time.Minute)
				if n := len(batch); err != nil || n == 0 || n == queue.MaxBatch {
					t.Fatalf("%s: got %d messages and the error %v", name, n, err)
				}
				if n, want := driver.EmptyAfter(q), 2-min(jobs, 2); n != want {
					t.Errorf("%s, %d of %d messages: EmptyAfter returns %d, want %d", name, len(batch), jobs, n, want)
				}
			}
			if err := b.jobs.Clear(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A dequeue under a limit may ask for less than the loop wants. Without safety polls and events a
// backlog is still handled, as fast as the limit allows.
func TestAShortBatchUnderALimitEndsNoLoop(t *testing.T) {
	wrappers := map[string]func(b *bundle) queue.Queue{
		"limited": func(b *bundle) queue.Queue {
			l, err := limits.NewProcess(&limits.ProcessOptions{Messages: 200, Burst: 40 * time.Millisecond}) // each job is got and deleted
			if err != nil {
				b.Fatal(err)
			}
			return l.Wrap(b.jobs)
		},
		"paired": func(b *bundle) queue.Queue { return must(paired.New(b.jobs, b.tokens, nil)) },
	}
	for name, wrap := range wrappers {
		synctest.Test(t, func(t *testing.T) {
			const jobs = 1000
			b := tokensSetup(t)
			b.put(jobs)
			q := wrap(b)
			var handled atomic.Int64
			l := listener.New(q, func(context.Context, *listener.Message[int]) error { handled.Add(1); return nil }, &listener.Options[int]{
				Wakeups: new(wakeup.Bus), Fetch: listener.FetchOptions{SafetyPoll: -1}, Logger: slog.New(slog.DiscardHandler),
			})
			ctx, cancel := context.WithTimeout(t.Context(), 11*time.Second)
			defer cancel()
			if err := l.Run(ctx); err != nil {
				t.Error(err)
			}
			t.Logf("%s: %d of %d jobs handled in 11 s", name, handled.Load(), jobs)
			if n := handled.Load(); n != jobs {
				t.Errorf("%s: %d of %d jobs handled in 11 s", name, n, jobs)
			}
		})
	}
}
