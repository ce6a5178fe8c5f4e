package slots_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

type job struct{ N int }

// limited is a listener of a test. It must be made in a bubble.
type limited struct {
	*testing.T
	queue    queue.Queue
	listener *listener.Listener[job]
	limit    *slots.Adaptive
	stop     func()
	done     chan error
}

// start starts a listener under the limit for n jobs. Set changes its options.
func start(t *testing.T, name string, n int, l *slots.Adaptive, h listener.Handler[job], set func(*listener.Options[job])) *limited {
	t.Helper()
	q := must(localqueue.New(nil)).Queue(queue.Name{Account: "test", Queue: name})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	p := producer.New[job](q, nil)
	for i := range n {
		if _, err := p.Send(t.Context(), job{i}, nil); err != nil {
			t.Fatal(err)
		}
	}
	o := &listener.Options[job]{Logger: slog.New(slog.DiscardHandler), Interceptors: []listener.Interceptor{l.Intercept}}
	if set != nil {
		set(o)
	}
	if o.Slots == nil {
		o.Slots = l.Slots(nil)
	}
	w := &limited{T: t, queue: q, listener: listener.New(q, h, o), limit: l, done: make(chan error, 1)}
	ctx, stop := context.WithCancel(t.Context())
	w.stop = stop
	go func() { w.done <- w.listener.Run(ctx) }()
	return w
}

// finish stops the listener. No slot may be left in use.
func (w *limited) finish() {
	w.Helper()
	w.stop()
	if err := <-w.done; err != nil {
		w.Errorf("Run: got error %v, want nil", err)
	}
}

// mustBeFree fails the test if the limit has slots in use, after all its listeners have ended.
func mustBeFree(t *testing.T, l *slots.Adaptive) {
	t.Helper()
	if st := l.State(); st.Running != 0 || st.Held != 0 {
		t.Errorf("after the end: got %d handlers and %d slots held, want none", st.Running, st.Held)
	}
}

// dependents counts handlers that run at once, and refuses those beyond its capacity.
type dependents struct {
	capacity       int64
	now, most      atomic.Int64
	served, turned atomic.Int64
}

func (c *dependents) call(takes time.Duration) error {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	if n > c.capacity {
		c.turned.Add(1)
		return slots.Exhausted(errors.New("503"))
	}
	for {
		if most := c.most.Load(); n <= most || c.most.CompareAndSwap(most, n) {
			break
		}
	}
	time.Sleep(takes)
	c.served.Add(1)
	return nil
}

// A job that found the dependency exhausted has not failed: even with two attempts none becomes poison.
func TestExhaustedJobsKeepTheirAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &dependents{capacity: 3}
		l := must(slots.NewAdaptive(nil))
		w := start(t, "jobs", 300, l, func(context.Context, *listener.Message[job]) error { return c.call(time.Second) },
			func(o *listener.Options[job]) { o.Poison = listener.PoisonPolicy{MaxAttempts: 2} })
		advance(4 * time.Minute)
		st := w.listener.State()
		if st.Outcomes[listener.Deleted] != 300 || st.Outcomes[listener.Poisoned] != 0 || st.Outcomes[listener.Retried] != 0 {
			t.Errorf("got %d succeeded, %d poisoned, %d retried; want 300, 0, 0: %v", st.Outcomes[listener.Deleted], st.Outcomes[listener.Poisoned], st.Outcomes[listener.Retried], l.State())
		}
		if c.turned.Load() == 0 || c.turned.Load() > 150 {
			t.Errorf("refused calls: got %d, want some, and at most one for two jobs", c.turned.Load())
		}
		if got := l.State().Counts; got.Coped != 300 || got.Exhausted != c.turned.Load() {
			t.Errorf("Counts: got %+v, want 300 coped and %d exhausted", got, c.turned.Load())
		}
		w.finish()
		mustBeFree(t, l)
	})
}

// What a handler asks for explicitly stands, and Retry sets when the job comes again.
func TestExplicitResultsStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(slots.NewAdaptive(nil))
		var mu sync.Mutex
		var second time.Time
		begin := time.Now()
		w := start(t, "jobs", 3, l, func(_ context.Context, m *listener.Message[job]) error {
			switch {
			case m.Body.N == 0:
				return listener.Discard(slots.ErrExhausted)
			case m.Body.N == 1:
				return listener.Poison(slots.ErrExhausted)
			case m.DequeueCount == 1:
				return listener.Retry(40*time.Second, slots.Exhausted(errors.New("Retry-After: 40")))
			}
			mu.Lock()
			defer mu.Unlock()
			second = time.Now()
			if m.Attempt != 1 {
				t.Errorf("attempt: got %d, want 1", m.Attempt)
			}
			return nil
		}, nil)
		advance(2 * time.Minute)
		if st := w.listener.State(); st.Outcomes[listener.Discarded] != 1 || st.Outcomes[listener.Poisoned] != 1 || st.Outcomes[listener.Deleted] != 1 {
			t.Errorf("got %d discarded, %d poisoned, %d succeeded; want 1 each", st.Outcomes[listener.Discarded], st.Outcomes[listener.Poisoned], st.Outcomes[listener.Deleted])
		}
		if after := second.Sub(begin); after < 40*time.Second || after > 50*time.Second {
			t.Errorf("the job came again after %v, want 40 s or a little more", after)
		}
		if got := l.State().Counts.Exhausted; got != 3 {
			t.Errorf("exhausted: got %d, want 3", got)
		}
		w.finish()
	})
}

// Several listeners share a limit: together they run no more, each has its part, and what each returns counts for all.
func TestListenersShareALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &dependents{capacity: 10}
		l := must(slots.NewAdaptive(&slots.AdaptiveOptions{Max: 40, Start: 4}))
		handler := func(context.Context, *listener.Message[job]) error { return c.call(time.Second) }
		one, other := start(t, "one", 3000, l, handler, nil), start(t, "other", 3000, l, handler, nil)
		advance(3 * time.Minute)
		a, b := one.listener.State().Outcomes[listener.Deleted], other.listener.State().Outcomes[listener.Deleted]
		if total := a + b; total < 10*180*80/100 || a < total*4/10 || b < total*4/10 {
			t.Errorf("in 3 minutes: got %d and %d jobs, want 1,440 or more in all, and each two fifths of them: %v", a, b, l.State())
		}
		one.finish()
		advance(2 * time.Minute)
		if more := other.listener.State().Outcomes[listener.Deleted] - b; more < 10*120*75/100 {
			t.Errorf("the other alone for 2 minutes: got %d jobs more, want 900 or more: %v", more, l.State())
		}
		other.finish()
		mustBeFree(t, l)
	})
}

// However many listeners share a limit, the dependency refuses at most a fifth of their calls: with more
// of them than it bears they take turns.
func TestManyListenersShareALimit(t *testing.T) {
	if testing.Short() {
		t.Skip("plays 50 listeners")
	}
	for _, n := range []int{1, 4, 20, 50} {
		synctest.Test(t, func(t *testing.T) {
			c := &dependents{capacity: 5}
			l := must(slots.NewAdaptive(nil))
			handler := func(context.Context, *listener.Message[job]) error { return c.call(200 * time.Millisecond) }
			var all []*limited
			for i := range n {
				all = append(all, start(t, fmt.Sprintf("listener-%d", i), 4000/n, l, handler, nil))
			}
			advance(2 * time.Minute)
			fewest, sum := int64(4000), int64(0)
			for _, w := range all {
				done := w.listener.State().Outcomes[listener.Deleted]
				fewest, sum = min(fewest, done), sum+done
			}
			t.Logf("%d listeners: %d jobs, the least %d, %d refused: %v", n, sum, fewest, c.turned.Load(), l.State())
			if possible := int64(5 * 5 * 120); sum < possible*7/10 || fewest < sum/int64(n)*7/10 {
				t.Errorf("%d listeners: got %d jobs and %d of one, want 70 %% or more of %d, and the same of each part", n, sum, fewest, possible)
			}
			if part := float64(c.turned.Load()) / float64(sum+c.turned.Load()); part > 0.2 {
				t.Errorf("%d listeners: got %.0f %% of the calls refused, want at most 20 %%", n, 100*part)
			}
			for _, w := range all {
				w.finish()
			}
			mustBeFree(t, l)
		})
	}
}

// In a pool the listener keeps to the limit, and the others have what it cannot use, even of a later rank.
func TestALimitWithinAPool(t *testing.T) {
	t.Run("of one rank", func(t *testing.T) { testALimitWithinAPool(t, 0) })
	t.Run("of a later rank", func(t *testing.T) { testALimitWithinAPool(t, 1) })
}

func testALimitWithinAPool(t *testing.T, rank int) {
	synctest.Test(t, func(t *testing.T) {
		c, free := &dependents{capacity: 5}, &dependents{capacity: 1000}
		p := must(slots.NewShared(&slots.SharedOptions{Slots: 30}))
		l, none := must(slots.NewAdaptive(&slots.AdaptiveOptions{Max: 30})), must(slots.NewAdaptive(&slots.AdaptiveOptions{Max: 30, Start: 30}))
		limited := start(t, "limited", 2000, l, func(context.Context, *listener.Message[job]) error { return c.call(time.Second) },
			func(o *listener.Options[job]) { o.Slots = l.Slots(p.Member(nil)) })
		other := start(t, "other", 5000, none, func(context.Context, *listener.Message[job]) error { return free.call(time.Second) },
			func(o *listener.Options[job]) {
				o.Slots, o.Interceptors = p.Member(&slots.MemberOptions{Rank: rank}), nil
			})
		advance(2 * time.Minute)
		if got := limited.listener.State().Outcomes[listener.Deleted]; got < 5*120*75/100 {
			t.Errorf("the limited listener: got %d jobs in 2 minutes, want 450 or more: %v", got, l.State())
		}
		if got := other.listener.State().Outcomes[listener.Deleted]; got < 20*120 {
			t.Errorf("the other: got %d jobs in 2 minutes, want 2,400 or more, of the 25 slots that the limit leaves it", got)
		}
		if held := p.State().Held; held > 30 {
			t.Errorf("the shared: got %d slots held, want at most 30", held)
		}
		limited.finish()
		other.finish()
		mustBeFree(t, l)
		if held := p.State().Held; held != 0 {
			t.Errorf("the shared: got %d slots held after the end, want none", held)
		}
	})
}

// Handlers may panic or call runtime.Goexit, and hooks may panic: no slot is lost, and the state says what a hook did.
func TestPanicsLoseNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(slots.NewAdaptive(&slots.AdaptiveOptions{
			Max: 4, Start: 4,
			Exhausted: func(error) bool { panic("hook") },
			Memory:    func() (slots.Memory, error) { panic("memory") },
		}))
		w := start(t, "jobs", 200, l, func(_ context.Context, m *listener.Message[job]) error {
			switch m.Body.N % 5 {
			case 0:
				panic("handler")
			case 1:
				runtime.Goexit()
			case 2:
				return errors.New("exit")
			case 3:
				return errors.New("plain")
			}
			return nil
		}, func(o *listener.Options[job]) {
			o.RetryDelay = func(int, error) time.Duration { return time.Second }
			o.Poison = listener.PoisonPolicy{MaxAttempts: 2}
		})
		advance(30 * time.Minute)
		if st := w.listener.State(); st.Outcomes[listener.Deleted] != 40 || st.Outcomes[listener.Poisoned] != 160 {
			t.Errorf("got %d succeeded and %d poisoned, want 40 and 160", st.Outcomes[listener.Deleted], st.Outcomes[listener.Poisoned])
		}
		if st := l.State(); st.Err == nil || !strings.Contains(st.Err.Error(), "adaptive limit") || st.Counts.Other != 320 {
			t.Errorf("got error %v and %+v, want the failure of a hook, and 320 other results", st.Err, st.Counts)
		}
		w.finish()
		mustBeFree(t, l)
	})
}

// Time-outs shrink the limit, and are attempts: the jobs may be at fault. An error that the stop causes changes nothing.
func TestTimeoutsShrinkTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(slots.NewAdaptive(&slots.AdaptiveOptions{Start: 20}))
		w := start(t, "jobs", 20, l, func(ctx context.Context, m *listener.Message[job]) error {
			if m.Attempt > 1 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}, func(o *listener.Options[job]) { o.Timeout = 10 * time.Second })
		advance(11 * time.Second)
		st := l.State()
		if st.Limit != 18 || st.Counts.TimedOut != 20 || !strings.Contains(st.Why, "20 → 18") || !strings.Contains(st.Why, "time-out") {
			t.Errorf("after 20 time-outs of one moment: got %v with %+v, want one cut, 20 → 18", st, st.Counts)
		}
		advance(time.Minute)
		if got := w.listener.State(); got.Outcomes[listener.Retried] != 20 || got.Outcomes[listener.Deleted] != 20 {
			t.Errorf("got %d retried and %d succeeded, want 20 each", got.Outcomes[listener.Retried], got.Outcomes[listener.Deleted])
		}
		w.finish()
		mustBeFree(t, l)
	})
}

// A stop in the middle interrupts handlers, and abandons those that ignore their contexts: they hold nothing.
func TestAStopInTheMiddleLosesNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := must(slots.NewAdaptive(&slots.AdaptiveOptions{Start: 20}))
		release := make(chan struct{})
		h := func(ctx context.Context, m *listener.Message[job]) error {
			if m.Body.N%2 == 0 {
				<-release // ignores its context
			}
			<-ctx.Done()
			return adaptiveError(ctx)
		}
		w := start(t, "jobs", 100, l, h, func(o *listener.Options[job]) { o.Grace, o.Lease.SettleTimeout = time.Second, time.Second })
		advance(5 * time.Second)
		w.stop()
		if err := <-w.done; !errors.As(err, new(*listener.AbandonedError)) {
			t.Errorf("Run: got error %v, want abandoned handlers", err)
		}
		st := l.State()
		if st.Held != 0 || st.Limit != 20 || st.Running == 0 {
			t.Errorf("after the stop: got %v, with %d slots held; want the limit 20, abandoned handlers that run, and no slot held", st, st.Held)
		}
		close(release)
		advance(time.Second)
		mustBeFree(t, l)
	})
}

// adaptiveError is what a client returns whose context was cancelled.
func adaptiveError(ctx context.Context) error { return fmt.Errorf("call: %w", ctx.Err()) }
