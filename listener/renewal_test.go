package listener

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// customUpdate is a queue with its own Update.
type customUpdate struct {
	queue.Queue
	update func(ctx context.Context, l queue.Lease, act func() (queue.Lease, error)) (queue.Lease, error)
}

func (q customUpdate) Update(ctx context.Context, l queue.Lease, text string, v time.Duration) (queue.Lease, error) {
	return q.update(ctx, l, func() (queue.Lease, error) { return q.Queue.Update(ctx, l, text, v) })
}

// V-05: leases of one batch that are all late double the visibility once; those of the next
// batch double it again.
func TestLeasesThatAreLateTogetherDoubleTheVisibilityOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		var broken atomic.Bool
		broken.Store(true)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "delete" && broken.Load() {
				return queue.ErrReceiptMismatch
			}
			return act()
		}
		b.put(8)
		l := New(b.queue, nothing, options())
		b.run(l)
		advance(time.Second)
		if st := l.State(); st.Late != 8 || st.Visibility != time.Minute {
			t.Errorf("after the first batch: got state %+v, want Late 8, Visibility 1m0s", st)
		}
		advance(32 * time.Second)
		if st := l.State(); st.Late != 16 || st.Visibility != 2*time.Minute {
			t.Errorf("after the second batch: got state %+v, want Late 16, Visibility 2m0s", st)
		}
		broken.Store(false)
		advance(time.Hour)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 8 || st.Visibility != 30*time.Second {
			t.Errorf("an hour later: got state %+v, want Succeeded 8, Visibility 30s", st)
		}
	})
}

// A handler that needs a moment to clean up after its time-out is a failed attempt and nothing
// else: its lease is kept until it returns.
func TestTheLeaseLastsWhileAHandlerCleansUp(t *testing.T) {
	for _, cleaning := range []time.Duration{1500 * time.Millisecond, 50 * time.Second} {
		bubble(t, func(b *bundle) {
			b.send(1)
			var attempts []int
			o := fixed(30 * time.Second)
			o.Timeout = 28 * time.Second
			o.RetryDelay = func(int, error) time.Duration { return time.Second }
			l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
				attempts = append(attempts, m.Attempt)
				<-ctx.Done()
				time.Sleep(cleaning)
				return ctx.Err()
			}, o)
			b.run(l)
			advance(20 * time.Minute)
			b.mustFinish()
			records := b.poisonRecords()
			st := l.State()
			if len(attempts) != 5 || st.Outcomes[Retried] != 4 || st.Outcomes[Lost] != 0 || len(records) != 1 || records[0].Reason != poison.ReasonAttempts {
				t.Errorf("cleaning up for %v: got attempts %v, state %+v, records %+v; want 5 attempts and one record of them",
					cleaning, attempts, st, records)
			}
		})
	}
}

// The lease of a handler that was reported as stuck is not renewed.
func TestTheLeaseOfAStuckHandlerIsNotRenewed(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		release := make(chan struct{})
		var runs atomic.Int64
		o := fixed(30 * time.Second)
		o.Timeout = 10 * time.Second
		l := New(b.queue, func(context.Context, *Message[job]) error {
			if runs.Add(1) == 1 {
				stuckHere(release)
			}
			return nil
		}, o)
		b.run(l)
		advance(69 * time.Second) // a minute after its time-out, all but a second
		if n := l.State().Renewed; runs.Load() != 1 || n < 3 {
			t.Errorf("got %d runs and %d renewals before it is stuck, want 1 and at least 3", runs.Load(), n)
		}
		advance(34 * time.Second)
		if st := l.State(); runs.Load() != 2 || st.Outcomes[Deleted] != 1 {
			t.Errorf("got %d runs, state %+v, half a minute after it was reported; want runs 2, Succeeded 1", runs.Load(), st)
		}
		close(release)
		advance(time.Minute)
		b.mustFinish()
	})
}

// A renewal whose response comes after the old lease but within the new one keeps it. The handler
// is cancelled in between, because the outcome is not yet known; that is not an attempt. Later
// renewals are sent sooner or ask for more.
func TestASlowRenewalIsNotAnAttempt(t *testing.T) {
	for slow, o := range map[time.Duration]*Options[job]{
		12 * time.Second: fixed(30 * time.Second), 14 * time.Second: fixed(30 * time.Second), 20 * time.Second: options(),
	} {
		bubble(t, func(b *bundle) {
			b.send(1)
			b.queue.intercept = func(op string, act func() error) error {
				err := act()
				if op == "update" {
					time.Sleep(slow)
				}
				return err
			}
			var attempts []int
			l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
				attempts = append(attempts, m.Attempt)
				select {
				case <-time.After(3 * time.Minute):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			}, o)
			b.run(l)
			advance(30 * time.Minute)
			b.mustFinish()
			if st := l.State(); st.Outcomes[Deleted] != 1 || st.Outcomes[Retried]+st.Outcomes[Lost] != 0 || len(attempts) > 2 || attempts[len(attempts)-1] != 1 {
				t.Errorf("renewals of %v: got attempts %v, state %+v; want Succeeded 1 in attempt 1 after at most 2 runs", slow, attempts, st)
			}
		})
	}
}

// A renewal that fails after the lease has expired by our clock is retried: if no other worker
// has the message, the result of its handler can still be recorded.
func TestAnExpiredLeaseCanBeRenewed(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		b.queue.intercept = func(op string, act func() error) error {
			if op == "update" && time.Since(b.begin) < 33*time.Second {
				return &queue.Error{Op: op, Kind: queue.ErrThrottled}
			}
			return act()
		}
		var attempts []int
		o := fixed(30 * time.Second)
		o.Concurrency, o.Fetch.BatchSize = 1, 1 // so that no other dequeue takes the message
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			attempts = append(attempts, m.Attempt)
			if len(attempts) > 1 {
				return nil
			}
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), dispatcher.ErrLeaseExpired) {
				t.Errorf("cause: got %v, want ErrLeaseExpired", context.Cause(ctx))
			}
			time.Sleep(20 * time.Second)
			return ctx.Err()
		}, o)
		b.run(l)
		advance(5 * time.Minute)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Returned] != 1 || st.Outcomes[Deleted] != 1 || st.Outcomes[Lost] != 0 || len(attempts) != 2 || attempts[1] != 1 {
			t.Errorf("got attempts %v, state %+v; want Returned 1, Succeeded 1, Lost 0, attempts 2, attempts[1] 1", attempts, st)
		}
	})
}

// Renewals that hang, however many, lose at most their own leases.
func TestHangingRenewalsLoseNoOtherLease(t *testing.T) {
	if testing.Short() {
		t.Skip("holds thousands of leases")
	}
	for _, v := range []time.Duration{10 * time.Second, 30 * time.Second} {
		bubble(t, func(b *bundle) {
			const jobs, hanging = 1000, 500
			b.put(jobs)
			var hangingIDs sync.Map // the messages whose renewals hang
			var cancelled atomic.Int64
			q := customUpdate{b.queue, func(ctx context.Context, l queue.Lease, act func() (queue.Lease, error)) (queue.Lease, error) {
				if _, hangs := hangingIDs.Load(l.ID); hangs {
					<-ctx.Done()
					return queue.Lease{}, &queue.Error{Kind: queue.ErrOutcomeUnknown, Err: ctx.Err()}
				}
				time.Sleep(20 * time.Millisecond)
				return act()
			}}
			o := fixed(v)
			o.Concurrency = jobs
			l := New[job](q, func(ctx context.Context, m *Message[job]) error {
				hangs := m.Body.N < hanging
				if hangs {
					hangingIDs.Store(m.ID, true)
				}
				select {
				case <-time.After(5 * v):
				case <-ctx.Done():
					if !hangs {
						cancelled.Add(1)
					}
				}
				return nil
			}, o)
			b.run(l)
			advance(6 * v)
			b.mustFinish()
			if st := l.State(); cancelled.Load() != 0 || st.Outcomes[Deleted] < jobs-hanging {
				t.Errorf("visibility %v: got %d others cancelled, state %+v; want 0 and Succeeded at least %d", v, cancelled.Load(), st, jobs-hanging)
			}
		})
	}
}

// A hanging renewal is abandoned in time for a retry where the lease allows it.
func TestAHangingRenewalIsRetried(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		calls := 0
		q := customUpdate{b.queue, func(ctx context.Context, l queue.Lease, act func() (queue.Lease, error)) (queue.Lease, error) {
			if calls++; calls%3 == 1 {
				<-ctx.Done()
				return queue.Lease{}, &queue.Error{Kind: queue.ErrOutcomeUnknown, Err: ctx.Err()}
			}
			return act()
		}}
		l := New[job](q, func(ctx context.Context, _ *Message[job]) error {
			select {
			case <-time.After(time.Hour):
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}, fixed(2*time.Minute))
		b.run(l)
		advance(2 * time.Hour)
		b.mustFinish()
		if st := l.State(); st.Outcomes[Deleted] != 1 || st.Received != 1 {
			t.Errorf("got %d renewals, state %+v; want Succeeded 1, Received 1", calls, st)
		}
	})
}

// latentQueue is a queue with the latency of a storage account: most requests take some
// milliseconds, one in fifty takes a hundred more, one in a thousand two seconds more.
type latentQueue struct {
	queue.Queue

	mu      sync.Mutex
	random  *rand.Rand // guarded by mu
	updates []int      // by the second; guarded by mu
	begin   time.Time
}

func (c *latentQueue) delay() {
	c.mu.Lock()
	d := 4*time.Millisecond + time.Duration(c.random.ExpFloat64()*float64(12*time.Millisecond))
	if c.random.IntN(50) == 0 {
		d += 100 * time.Millisecond
	}
	if c.random.IntN(1000) == 0 {
		d += 2 * time.Second
	}
	c.mu.Unlock()
	time.Sleep(d)
}

func (c *latentQueue) Dequeue(ctx context.Context, n int, v time.Duration) ([]queue.Message, error) {
	c.delay()
	return c.Queue.Dequeue(ctx, n, v)
}

func (c *latentQueue) Update(ctx context.Context, l queue.Lease, text string, v time.Duration) (queue.Lease, error) {
	c.mu.Lock()
	second := int(time.Since(c.begin) / time.Second)
	for len(c.updates) <= second {
		c.updates = append(c.updates, 0)
	}
	c.updates[second]++
	c.mu.Unlock()
	c.delay()
	return c.Queue.Update(ctx, l, text, v)
}

func (c *latentQueue) Delete(ctx context.Context, l queue.Lease) error {
	c.delay()
	return c.Queue.Delete(ctx, l)
}

// underRace reports whether the race detector is on, which makes everything ten times slower.
func underRace() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}

// Fifteen thousand long handlers, twice as many as are renewed at 30 s, keep their leases and
// renew them less and less often: at 30 s, an hour would take 200 renewals each.
func TestManyLongHandlersKeepTheirLeasesWithFewRenewals(t *testing.T) {
	const many = 15_000
	handlers := many
	if !suitetest.Long() || underRace() {
		handlers = 2_000
	}
	bubble(t, func(b *bundle) {
		for range handlers {
			if _, err := b.queue.Queue.Enqueue(t.Context(), `{"N":1}`, nil); err != nil {
				t.Fatal(err)
			}
		}
		c := &latentQueue{Queue: b.queue.Queue, random: rand.New(rand.NewPCG(1, 2)), begin: time.Now()}
		var cancelled atomic.Int64
		finish := make(chan struct{})
		o := options()
		o.Concurrency = handlers
		l := New[job](c, func(ctx context.Context, _ *Message[job]) error {
			select {
			case <-finish: // one timer for all: a bubble with so many would be slow
			case <-ctx.Done():
				cancelled.Add(1)
			}
			return nil
		}, o)
		b.run(l)
		advance(7 * time.Minute)
		c.mu.Lock()
		renewals := slices.Clone(c.updates)
		c.mu.Unlock()
		peak := 0 // renewals in a minute
		for begin := range 7 {
			n := 0
			for _, one := range renewals[60*begin : min(60*(begin+1), len(renewals))] {
				n += one
			}
			peak = max(peak, n)
			t.Logf("minute %d: %d renewals", begin+1, n)
		}
		advance(time.Minute)
		close(finish)
		advance(time.Minute)
		b.mustFinish()
		st := l.State()
		if cancelled.Load() != 0 || st.Outcomes[Lost] != 0 || st.Outcomes[Deleted] != int64(handlers) {
			t.Errorf("got %d cancelled, state %+v; want cancelled 0, Lost 0, Succeeded %v", cancelled.Load(), st, int64(handlers))
		}
		if each := float64(st.Renewed) / float64(handlers); each > 9 || handlers == many && (each > 6.5 || peak > 33_000) {
			t.Errorf("got %.2f renewals of each handler in 8 minutes, up to %d in a minute; want at most 9, or 6.5 and 33,000 for %d handlers",
				each, peak, many)
		}
	})
}

// The message of a killed worker is delivered again after at most the time that its handler had
// run, and after at most the maximum visibility.
func TestAKilledWorkersMessageWaitsNoLongerThanItsHandlerRan(t *testing.T) {
	for _, ran := range []time.Duration{5 * time.Second, time.Minute, 7 * time.Minute, 2 * time.Hour} {
		bubble(t, func(b *bundle) {
			b.send(1)
			l, q := b.newProcess(nil, func(ctx context.Context, _ *Message[job]) error { <-ctx.Done(); return nil }, options())
			b.run(l)
			advance(ran)
			q.Kill()
			l.Halt()
			b.mustFinish()
			begin := time.Now()
			for waited := time.Duration(0); ; waited = time.Since(begin) {
				batch, err := b.queue.Queue.Dequeue(b.Context(), 1, time.Second)
				if err != nil {
					t.Fatal(err)
				}
				if len(batch) > 0 {
					if bound := min(max(ran, 30*time.Second), 10*time.Minute); waited > bound+time.Second {
						t.Errorf("handler that ran %v: got its message back after %v, want at most %v", ran, waited, bound+time.Second)
					}
					return
				}
				advance(time.Second)
			}
		})
	}
}
