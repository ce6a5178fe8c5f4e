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
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// renewing is a queue with its own Update.
type renewing struct {
	queue.Queue
	update func(ctx context.Context, l queue.Lease, act func() (queue.Lease, error)) (queue.Lease, error)
}

func (q renewing) Update(ctx context.Context, l queue.Lease, text string, v time.Duration) (queue.Lease, error) {
	return q.update(ctx, l, func() (queue.Lease, error) { return q.Queue.Update(ctx, l, text, v) })
}

// V-05: leases of one batch that are all late double the visibility once; those of the next
// batch double it again.
func TestLeasesThatAreLateTogetherDoubleTheVisibilityOnce(t *testing.T) {
	bubble(t, func(b *bundle) {
		var broken atomic.Bool
		broken.Store(true)
		b.queue.tamper = func(op string, act func() error) error {
			if op == "delete" && broken.Load() {
				return queue.ErrReceiptMismatch
			}
			return act()
		}
		b.put(8)
		l := New(b.queue, nothing, options())
		b.run(l)
		after(time.Second)
		if st := l.State(); st.Late != 8 || st.Visibility != time.Minute {
			t.Errorf("after the first: state %+v, want a visibility of a minute", st)
		}
		after(32 * time.Second)
		if st := l.State(); st.Late != 16 || st.Visibility != 2*time.Minute {
			t.Errorf("after the second: state %+v, want one of two minutes", st)
		}
		broken.Store(false)
		after(time.Hour)
		b.finished()
		if st := l.State(); st.Succeeded != 8 || st.Visibility != 30*time.Second {
			t.Errorf("an hour later: state %+v, want 30 s again", st)
		}
	})
}

// A handler that needs a moment to clean up after its time-out is a failed attempt and nothing
// else: its lease lasts until it returns.
func TestAHandlerMayCleanUpAfterItsTimeOut(t *testing.T) {
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
			after(20 * time.Minute)
			b.finished()
			c := b.copies()
			if st := l.State(); len(attempts) != 5 || st.Retried != 4 || st.Lost != 0 || len(c) != 1 || c[0].Reason != poison.ReasonAttempts {
				t.Errorf("cleaning up for %v: attempts %v, state %+v, records %+v", cleaning, attempts, st, c)
			}
		})
	}
}

// The lease of a handler that is reported as stuck is renewed no longer.
func TestAStuckHandlerLosesItsLease(t *testing.T) {
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
		after(69 * time.Second) // a minute after its time-out, all but a second
		if n := l.State().Renewed; runs.Load() != 1 || n < 3 {
			t.Errorf("%d runs, %d renewals before it is stuck", runs.Load(), n)
		}
		after(34 * time.Second)
		if st := l.State(); runs.Load() != 2 || st.Succeeded != 1 {
			t.Errorf("%d runs, state %+v, half a minute after it was reported", runs.Load(), st)
		}
		close(release)
		after(time.Minute)
		b.finished()
	})
}

// A renewal whose answer comes after the old lease but within the new one keeps it. The handler
// is cancelled in between, because the result is not yet known; that is not an attempt. Later
// renewals are sent sooner or ask for more.
func TestASlowRenewalCostsNoAttempt(t *testing.T) {
	for slow, o := range map[time.Duration]*Options[job]{
		12 * time.Second: fixed(30 * time.Second), 14 * time.Second: fixed(30 * time.Second), 20 * time.Second: options(),
	} {
		bubble(t, func(b *bundle) {
			b.send(1)
			b.queue.tamper = func(op string, act func() error) error {
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
			after(30 * time.Minute)
			b.finished()
			if st := l.State(); st.Succeeded != 1 || st.Retried+st.Lost != 0 || len(attempts) > 2 || attempts[len(attempts)-1] != 1 {
				t.Errorf("renewals of %v: attempts %v, state %+v", slow, attempts, st)
			}
		})
	}
}

// A renewal that fails after the lease has expired by our clock is retried: perhaps no other
// worker has the message, and the result of its handler can then be recorded.
func TestALeaseThatExpiredCanBeHadAgain(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.send(1)
		b.queue.tamper = func(op string, act func() error) error {
			if op == "update" && time.Since(b.begin) < 33*time.Second {
				return &queue.Error{Op: op, Kind: queue.ErrThrottled}
			}
			return act()
		}
		var attempts []int
		o := fixed(30 * time.Second)
		o.Concurrency, o.BatchSize = 1, 1 // nobody else asks
		l := New(b.queue, func(ctx context.Context, m *Message[job]) error {
			attempts = append(attempts, m.Attempt)
			if len(attempts) > 1 {
				return nil
			}
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), dispatcher.ErrLeaseExpired) {
				t.Errorf("cancelled with %v", context.Cause(ctx))
			}
			time.Sleep(20 * time.Second)
			return ctx.Err()
		}, o)
		b.run(l)
		after(5 * time.Minute)
		b.finished()
		if st := l.State(); st.GivenBack != 1 || st.Succeeded != 1 || st.Lost != 0 || len(attempts) != 2 || attempts[1] != 1 {
			t.Errorf("attempts %v, state %+v", attempts, st)
		}
	})
}

// Renewals that hang, however many, lose at most their own leases.
func TestRenewalsThatHangCostNoOtherLease(t *testing.T) {
	for _, v := range []time.Duration{10 * time.Second, 30 * time.Second} {
		bubble(t, func(b *bundle) {
			const jobs, hanging = 1000, 500
			b.put(jobs)
			var bad sync.Map // the messages whose renewals hang
			var cancelled atomic.Int64
			q := renewing{b.queue, func(ctx context.Context, l queue.Lease, act func() (queue.Lease, error)) (queue.Lease, error) {
				if _, hangs := bad.Load(l.ID); hangs {
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
					bad.Store(m.ID, true)
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
			after(6 * v)
			b.finished()
			if st := l.State(); cancelled.Load() != 0 || st.Succeeded < jobs-hanging {
				t.Errorf("visibility %v: %d others were cancelled, state %+v", v, cancelled.Load(), st)
			}
		})
	}
}

// A hanging renewal is given up in time for a retry where the lease allows it.
func TestARenewalThatHangsIsTriedAgain(t *testing.T) {
	bubble(t, func(b *bundle) {
		b.put(1)
		calls := 0
		q := renewing{b.queue, func(ctx context.Context, l queue.Lease, act func() (queue.Lease, error)) (queue.Lease, error) {
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
		after(2 * time.Hour)
		b.finished()
		if st := l.State(); st.Succeeded != 1 || st.Received != 1 {
			t.Errorf("%d renewals, state %+v", calls, st)
		}
	})
}

// cloud is a queue with the latency of a storage account: most requests take some milliseconds,
// one in fifty a hundred more, one in a thousand two seconds.
type cloud struct {
	queue.Queue

	mu      sync.Mutex
	random  *rand.Rand // guarded by mu
	updates []int      // by the second; guarded by mu
	begin   time.Time
}

func (c *cloud) travel() {
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

func (c *cloud) Dequeue(ctx context.Context, n int, v time.Duration) ([]queue.Message, error) {
	c.travel()
	return c.Queue.Dequeue(ctx, n, v)
}

func (c *cloud) Update(ctx context.Context, l queue.Lease, text string, v time.Duration) (queue.Lease, error) {
	c.mu.Lock()
	second := int(time.Since(c.begin) / time.Second)
	for len(c.updates) <= second {
		c.updates = append(c.updates, 0)
	}
	c.updates[second]++
	c.mu.Unlock()
	c.travel()
	return c.Queue.Update(ctx, l, text, v)
}

func (c *cloud) Delete(ctx context.Context, l queue.Lease) error {
	c.travel()
	return c.Queue.Delete(ctx, l)
}

// underRace reports whether the race detector is on, which makes everything ten times slower.
func underRace() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}

// Fifteen thousand long handlers, twice as many as are renewed at 30 s, keep their leases and
// renew them less and less often: at 30 s, an hour would need 200 renewals each.
func TestManyLongHandlersKeepTheirLeasesAndRenewThemSeldom(t *testing.T) {
	const many = 15_000
	handlers := many
	if testing.Short() || underRace() {
		handlers = 2_000
	}
	bubble(t, func(b *bundle) {
		for range handlers {
			if _, err := b.queue.Queue.Enqueue(t.Context(), `{"N":1}`, nil); err != nil {
				t.Fatal(err)
			}
		}
		c := &cloud{Queue: b.queue.Queue, random: rand.New(rand.NewPCG(1, 2)), begin: time.Now()}
		var cancelled atomic.Int64
		finish := make(chan struct{})
		o := options()
		o.Concurrency = handlers
		l := New[job](c, func(ctx context.Context, _ *Message[job]) error {
			select {
			case <-finish: // one timer for all: the bubble is slow with so many
			case <-ctx.Done():
				cancelled.Add(1)
			}
			return nil
		}, o)
		b.run(l)
		after(7 * time.Minute)
		c.mu.Lock()
		renewals := slices.Clone(c.updates)
		c.mu.Unlock()
		most := 0 // in a minute
		for begin := range 7 {
			n := 0
			for _, one := range renewals[60*begin : min(60*(begin+1), len(renewals))] {
				n += one
			}
			most = max(most, n)
			t.Logf("minute %d: %d renewals", begin+1, n)
		}
		after(time.Minute)
		close(finish)
		after(time.Minute)
		b.finished()
		st := l.State()
		if cancelled.Load() != 0 || st.Lost != 0 || st.Succeeded != int64(handlers) {
			t.Errorf("%d cancelled, state %+v", cancelled.Load(), st)
		}
		if each := float64(st.Renewed) / float64(handlers); each > 9 || handlers == many && (each > 6.5 || most > 33_000) {
			t.Errorf("%.2f renewals of each handler in 8 minutes, up to %d in a minute", each, most)
		}
	})
}

// The message of a worker that died is delivered again before it has waited for as long as its
// handler had run, and after the longest visibility at most.
func TestADeadWorkersMessageIsBackBeforeItWaitedForAsLongAsItRan(t *testing.T) {
	for _, ran := range []time.Duration{5 * time.Second, time.Minute, 7 * time.Minute, 2 * time.Hour} {
		bubble(t, func(b *bundle) {
			b.send(1)
			l, q := b.process(nil, func(ctx context.Context, _ *Message[job]) error { <-ctx.Done(); return nil }, options())
			b.run(l)
			after(ran)
			q.Kill()
			l.Halt()
			b.finished()
			begin := time.Now()
			for waited := time.Duration(0); ; waited = time.Since(begin) {
				batch, err := b.queue.Queue.Dequeue(b.Context(), 1, time.Second)
				if err != nil {
					t.Fatal(err)
				}
				if len(batch) > 0 {
					if most := min(max(ran, 30*time.Second), 10*time.Minute); waited > most+time.Second {
						t.Errorf("a handler had run for %v, and its message came back after %v", ran, waited)
					}
					return
				}
				after(time.Second)
			}
		})
	}
}
