package perkey_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/perkey"
	"github.com/millrace/millrace/producer"
)

// plan is what happens to a job: its faults come first, one in each call, and then it succeeds.
type plan struct {
	group   int       // -1 for a lone job
	keys    [2]string // of the outer and the inner middleware
	takes   time.Duration
	faults  []string
	untold  int // how often the outer key cannot be told
	outside time.Duration
}

// roughPlay plays groups and jobs whose handlers and keys fail in all ways.
type roughPlay struct {
	*bundle
	dice    *rand.Rand
	inner   *perkey.Keys
	batched bool
	lost    atomic.Int64 // deliveries: of stuck handlers, whose leases are not renewed

	planMu sync.Mutex
	plans  []*plan     // by the number of the job; guarded by planMu
	ended  map[int]int // how often the job has succeeded or was discarded; guarded by planMu
	order  []int       // in which jobs ended; guarded by planMu
}

func newRoughPlay(b *bundle, seed int) *roughPlay {
	b.Helper()
	dice := rand.New(rand.NewPCG(uint64(seed), 1))
	inner, err := perkey.New(&perkey.Options{Wait: []time.Duration{-1, 0, time.Second}[dice.IntN(3)]})
	if err != nil {
		b.Fatal(err)
	}
	r := &roughPlay{bundle: b, dice: dice, inner: inner, ended: map[int]int{}}
	b.options.Timeout = 10 * time.Second
	b.options.Concurrency = 1 + r.dice.IntN(16)
	b.options.Visibility = listener.FixedVisibility(5 * time.Second)
	b.options.RetryDelay = func(int, error) time.Duration { return time.Second }
	b.options.Poison.MaxAttempts = 1000
	if dice.IntN(3) == 0 {
		b.options.StuckAfter, b.options.GiveUp = time.Second, true
	}
	b.options.Observer.Settled = func(_ listener.Delivery, o listener.Outcome, _ time.Duration) {
		if o == listener.Lost {
			r.lost.Add(1)
		}
	}
	r.batched = r.dice.IntN(3) == 0
	keys, faulty := 1+r.dice.IntN(6), r.dice.IntN(3)
	for group := range 1 + r.dice.IntN(4) {
		n := 1 + r.dice.IntN(60)
		fails := r.dice.IntN(3) < faulty
		jobs := make([]job, n)
		for i := range jobs {
			jobs[i].N = r.plan(group, keys, fails)
		}
		if _, err := producer.New[job](b.queue, nil).SendGroup(b.Context(), jobs, nil); err != nil {
			b.Fatal(err)
		}
	}
	for range r.dice.IntN(20) {
		b.send("", r.plan(-1, keys, faulty > 0), 0)
	}
	return r
}

// plan plans a job, and returns its number.
func (r *roughPlay) plan(group, keys int, fails bool) int {
	key := func() string {
		if n := r.dice.IntN(keys + 1); n > 0 {
			return fmt.Sprint(n)
		}
		return ""
	}
	p := &plan{group: group, keys: [2]string{key(), key()}}
	p.takes = []time.Duration{0, time.Millisecond, time.Second, 7 * time.Second}[r.dice.IntN(4)]
	p.outside = time.Duration(r.dice.IntN(3)) * time.Millisecond
	if fails && r.dice.IntN(4) == 0 {
		all := []string{"error", "snooze", "postpone", "panic", "goexit", "overdue", "discard"}
		for range 1 + r.dice.IntN(2) {
			p.faults = append(p.faults, all[r.dice.IntN(len(all))])
		}
		p.untold = r.dice.IntN(3)
	}
	r.plans = append(r.plans, p)
	return len(r.plans) - 1
}

func (r *roughPlay) planOf(n int) *plan {
	r.planMu.Lock()
	defer r.planMu.Unlock()
	return r.plans[n]
}

func (r *roughPlay) end(n int) {
	r.planMu.Lock()
	defer r.planMu.Unlock()
	r.ended[n]++
	r.order = append(r.order, n)
}

// left returns how many jobs have not ended.
func (r *roughPlay) left() int {
	r.planMu.Lock()
	defer r.planMu.Unlock()
	return len(r.plans) - len(r.ended)
}

// work is the innermost handler.
func (r *roughPlay) work(ctx context.Context, m *listener.Message[job]) error {
	p := r.planOf(m.Body.N)
	for i, key := range p.keys {
		if key != "" {
			r.enter(fmt.Sprint(i, " ", key))
			defer r.leave(fmt.Sprint(i, " ", key))
		}
	}
	if !waiting.For(p.takes, ctx.Done()) {
		return context.Cause(ctx)
	}
	r.planMu.Lock()
	fault := ""
	if len(p.faults) > 0 {
		fault, p.faults = p.faults[0], p.faults[1:]
	}
	r.planMu.Unlock()
	switch fault {
	case "error":
		return errors.New("broken")
	case "snooze":
		return listener.Snooze(2 * time.Second)
	case "postpone":
		return listener.Postpone(time.Second, errors.New("not yet"))
	case "panic":
		panic("broken")
	case "goexit":
		runtime.Goexit()
	case "overdue":
		time.Sleep(12 * time.Second)
		return context.Cause(ctx)
	case "discard":
		r.end(m.Body.N)
		return listener.Discard(errors.New("not needed"))
	}
	r.end(m.Body.N)
	return nil
}

func (r *roughPlay) keyOf(i int) func(m *listener.Message[job]) string {
	return func(m *listener.Message[job]) string {
		p := r.planOf(m.Body.N)
		r.planMu.Lock()
		defer r.planMu.Unlock()
		if i == 0 && p.untold > 0 {
			p.untold--
			panic("no key")
		}
		return p.keys[i]
	}
}

// handler returns a handler. Reversed swaps the two middlewares, so that jobs can wait in a circle.
func (r *roughPlay) handler(reversed bool) listener.Handler[job] {
	h := r.work
	if r.batched {
		h = listener.Batch(func(ctx context.Context, ms []*listener.Message[job]) []error {
			errs := make([]error, len(ms))
			var all sync.WaitGroup
			for i, m := range ms {
				all.Go(func() {
					errs[i] = errors.New("ended its goroutine")
					defer func() {
						if p := recover(); p != nil {
							errs[i] = fmt.Errorf("panic: %v", p)
						}
					}()
					errs[i] = r.work(ctx, m)
				})
			}
			all.Wait()
			return errs
		}, 3, 100*time.Millisecond)
	}
	h = listener.All(h, func(context.Context, *listener.Message[job]) error { return nil })
	around := []listener.Middleware[job]{perkey.MiddlewareBy(r.keys, r.keyOf(0)), perkey.MiddlewareBy(r.inner, r.keyOf(1))}
	if reversed {
		slices.Reverse(around)
	}
	h = listener.Chain(h, around...)
	outside := func(ctx context.Context, m *listener.Message[job]) error {
		pause := r.planOf(m.Body.N).outside
		time.Sleep(pause)
		defer time.Sleep(pause)
		return h(ctx, m)
	}
	return listener.All(listener.Each(outside, 1+r.dice.IntN(8)), func(context.Context, *listener.Message[job]) error { return nil })
}

// Whatever handlers and keys do, and whenever the listener is stopped: every job ends exactly once,
// or again after a lost delivery; no two of a key run at once; and the items of a key keep their
// order in groups without a fault.
func TestAnyGroupsEndWhateverHappens(t *testing.T) {
	seeds := 40
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		bubble(t, nil, func(b *bundle) {
			r := newRoughPlay(b, seed)
			faulty := map[int]bool{}
			for _, p := range r.plans {
				faulty[p.group] = faulty[p.group] || len(p.faults) > 0
			}
			h := r.handler(false)
			if r.dice.IntN(2) == 0 {
				b.options.Grace = []time.Duration{-1, 500 * time.Millisecond, 20 * time.Second}[r.dice.IntN(3)]
				_, stop := b.start(h)
				advance(time.Duration(r.dice.IntN(60_000)) * time.Millisecond)
				stop()
				b.wantFree()
			}
			_, stop1 := b.start(h)
			stop2 := func() {}
			if r.dice.IntN(2) == 0 {
				_, stop2 = b.start(r.handler(r.dice.IntN(2) == 0))
			}
			for begin := time.Now(); ; advance(time.Second) {
				p, err := b.queue.Properties(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				if p.Depth == 0 {
					break
				}
				if time.Since(begin) > 3*time.Hour {
					b.Errorf("seed %d: %d messages and %d jobs are left; %+v", seed, p.Depth, r.left(), b.keys.State())
					break
				}
			}
			b.Logf("seed %d: %d jobs, concurrency %d, batched %t: %v", seed, len(r.plans), b.options.Concurrency, r.batched, time.Since(b.begin))
			stop1()
			stop2()
			b.wantFree()
			if s := r.inner.State(); s.Held != 0 || s.Waiting != 0 {
				b.Errorf("inner keys: got %+v, want none held", s)
			}
			for n := range r.plans {
				if r.ended[n] != 1 && (r.ended[n] == 0 || r.lost.Load() == 0) {
					b.Errorf("job %d of group %d ended %d times, want once", n, r.plans[n].group, r.ended[n])
				}
			}
			last := map[string]int{}
			for _, n := range r.order {
				p := r.plans[n]
				for i, key := range p.keys {
					line := fmt.Sprint(p.group, " ", i, " ", key)
					if before := last[line]; before > n && key != "" && p.group >= 0 && !faulty[p.group] && r.lost.Load() == 0 {
						b.Errorf("key %s: job %d ended after job %d of its group", line, n, before)
					}
					last[line] = n
				}
			}
			if b.Failed() {
				b.Fatalf("seed %d", seed)
			}
		})
		if t.Failed() {
			break
		}
	}
}
