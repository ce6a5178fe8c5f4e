package queue_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/limits"
	"github.com/millrace/millrace/queue/metered"
)

// worker is a process with a listener under a limit of concurrency.
type worker struct {
	limit    limits.Concurrency
	seed     uint64
	running  *gauge
	handled  *sync.Map
	crashing bool
}

// live is the life of a worker, until ctx ends or it crashes.
func (w worker) live(ctx context.Context, b *bundle) {
	faults := faultqueue.Rates{Throttled: 0.04, Unavailable: 0.03, LostRequest: 0.02, LostResponse: 0.04, Late: 0.01}
	if w.crashing {
		faults.Death = 0.01
	}
	f := must(faultqueue.New(b.tokens, &faultqueue.Options{Seed: w.seed, Every: faults}))
	faults.Death = 0
	jobs := must(faultqueue.New(b.jobs, &faultqueue.Options{Seed: w.seed + 1000, Every: faults}))
	defer f.Wait()
	defer jobs.Wait()
	w.limit.Seed = w.seed + 1
	l, err := w.limit.Open(ctx, f)
	if err != nil {
		return
	}
	work := listener.New(l.Wrap(jobs), func(ctx context.Context, m *listener.Message[int]) error {
		w.running.add(1)
		defer w.running.add(-1)
		select {
		case <-time.After(time.Duration(1+(m.Body*7+int(w.seed))%20) * time.Second):
			w.handled.Store(m.Body, true)
			return nil
		case <-f.Died():
		case <-ctx.Done():
		}
		return errors.New("ended")
	}, &listener.Options[int]{
		Concurrency: 8, Seed: w.seed + 1, Logger: slog.New(slog.DiscardHandler), Grace: 5 * time.Second,
		Interceptors: []listener.Interceptor{slots.OfFleet(l.Begin, l.End)},
		Lease:        listener.LeaseOptions{Visibility: listener.FixedVisibility(30 * time.Second)}, Poison: listener.PoisonPolicy{MaxAttempts: 1000, MaxLost: 1000},
	})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var parts sync.WaitGroup
	parts.Go(func() {
		select {
		case <-f.Died():
			jobs.Kill()
			l.Halt()
			work.Halt()
			stop()
		case <-ctx.Done():
		}
	})
	parts.Go(func() {
		if err := l.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	if err := work.Run(ctx); err != nil && !w.crashing {
		b.Error(err)
	}
	stop()
	parts.Wait()
}

// Whole listeners with restarts, crashes and faults keep to the limit, and everything is handled.
func TestListenersKeepToAConcurrency(t *testing.T) {
	full := 0
	n := seeds(30, 3)
	for seed := range n {
		seed += *firstSeed
		synctest.Test(t, func(t *testing.T) {
			b := tokensSetup(t)
			const jobs = 300
			b.put(jobs)
			c := limits.Concurrency{Jobs: 12, PerToken: 1 + seed%4}
			b.limit(c)
			g := &gauge{at: time.Now()}
			var handled sync.Map
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			var all sync.WaitGroup
			for i := range 3 {
				all.Go(func() {
					for life := 0; ctx.Err() == nil; life++ {
						alive, restart := context.WithTimeout(ctx, time.Duration(60+37*(i+life)%100)*time.Second)
						worker{c, uint64(seed)<<10 + uint64(i)<<7 + uint64(life), g, &handled, life%2 == 0 && life < 20}.live(alive, b)
						restart()
					}
				})
			}
			for {
				time.Sleep(10 * time.Second)
				if p, err := b.jobs.Properties(t.Context()); err != nil || p.Depth == 0 || ctx.Err() != nil {
					break
				}
			}
			took := time.Since(b.begin)
			cancel()
			all.Wait()
			got := 0
			handled.Range(func(any, any) bool { got++; return true })
			if g.most > c.Jobs || got != jobs {
				t.Errorf("seed %d: %d of %d jobs handled in %v, at most %d of %d at once", seed, got, jobs, took, g.most, c.Jobs)
			}
			if g.most == c.Jobs {
				full++
			}
		})
	}
	t.Logf("in %d of %d runs the limit was reached", full, n)
	if full < n/2 {
		t.Errorf("in %d of %d runs the limit was reached: this shows nothing", full, n)
	}
}

// Listeners of one process, in a pool, share a limit with those of another.
func TestListenersShareAConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		others := b.engine.Queue(queue.Name{Account: "acme", Queue: "others"})
		if err := others.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		c := limits.Concurrency{Jobs: 6, PerToken: 2}
		b.put(100)
		for range 100 {
			if _, err := others.Enqueue(t.Context(), "1", nil); err != nil {
				t.Fatal(err)
			}
		}
		b.limit(c)
		m := new(metered.Meter)
		g := &gauge{at: time.Now()}
		var handled [2]atomic.Int64
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range 2 {
			c.Seed = uint64(i + 1)
			l, _ := b.open(c, m.Wrap(b.tokens))
			shared := must(slots.NewShared(&slots.SharedOptions{Slots: 10}))
			for k, q := range []queue.Queue{b.jobs, others} {
				work := listener.New(l.Wrap(q), func(context.Context, *listener.Message[int]) error {
					g.add(1)
					defer g.add(-1)
					time.Sleep(time.Second)
					handled[k].Add(1)
					return nil
				}, &listener.Options[int]{
					Seed: uint64(2*i + k + 1), Slots: shared.Member(&slots.MemberOptions{Name: q.Name().Queue}),
					Logger: slog.New(slog.DiscardHandler), Interceptors: []listener.Interceptor{slots.OfFleet(l.Begin, l.End)},
				})
				all.Go(func() {
					if err := work.Run(ctx); err != nil {
						t.Error(err)
					}
				})
			}
		}
		for handled[0].Load()+handled[1].Load() < 200 {
			time.Sleep(time.Second)
			if time.Since(b.begin) > 5*time.Minute {
				t.Errorf("%d and %d of 100 jobs are handled after %v", handled[0].Load(), handled[1].Load(), time.Since(b.begin))
				break
			}
		}
		t.Logf("200 jobs of 1 s, 6 at once, took %v; %v", time.Since(b.begin), m.Counts().Total().Requests)
		stop()
		all.Wait()
		if g.most > 6 {
			t.Errorf("%d handlers at once, want 6", g.most)
		}
	})
}

// One token that is worth many handlers is the lock of one reader: only one process has handlers at a time, and when it
// dies another follows.
func TestOneTokenIsOneReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		b.put(2000)
		c := limits.Concurrency{Jobs: 8, PerToken: 8}
		b.limit(c)
		var running [3]gauge
		var together atomic.Int64
		ctx, stop := context.WithTimeout(t.Context(), 10*time.Minute)
		defer stop()
		var all sync.WaitGroup
		for i := range running {
			c.Seed = uint64(i + 1)
			l, _ := b.open(c, b.tokens)
			work := listener.New(l.Wrap(b.jobs), func(context.Context, *listener.Message[int]) error {
				running[i].add(1)
				defer running[i].add(-1)
				for k := range running {
					running[k].mu.Lock()
					if k != i && running[k].now > 0 {
						together.Add(1)
					}
					running[k].mu.Unlock()
				}
				time.Sleep(time.Second)
				return nil
			}, &listener.Options[int]{Seed: uint64(i + 1), Logger: slog.New(slog.DiscardHandler), Interceptors: []listener.Interceptor{slots.OfFleet(l.Begin, l.End)}})
			all.Go(func() {
				if err := work.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		total := running[0].total + running[1].total + running[2].total
		if n := together.Load(); n > 0 || total != 2000 {
			t.Errorf("%d handlers ran beside those of another process; %d of 2000 jobs were handled", n, total)
		}
		if running[0].total == total || running[1].total == total || running[2].total == total {
			t.Error("one process had all the jobs")
		}
	})
}

// A group without EachItem has a handler for each item, one after the other, and keeps its room between them.
func TestAGroupKeepsItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 1, Seed: 1}
		b.limit(c)
		l, _ := b.open(c, b.tokens)
		b.put(2)
		q := l.Wrap(b.jobs)
		batch, err := q.Dequeue(t.Context(), 1, time.Minute)
		if err != nil || len(batch) != 1 {
			t.Fatalf("got %d messages, error %v", len(batch), err)
		}
		for item := range 3 {
			d := dispatcher.Delivery{Queue: q.Name(), ID: batch[0].ID, DequeueCount: 1, Item: item, Items: 3}
			if err := slots.OfFleet(l.Begin, l.End)(t.Context(), d, func(context.Context) error { return nil }); err != nil {
				t.Fatal(err)
			}
			if more, err := q.Dequeue(t.Context(), 1, time.Minute); !errors.Is(err, queue.ErrLimited) {
				t.Fatalf("after item %d: got %d messages, error %v; want a limit", item, len(more), err)
			}
		}
		if err := q.Delete(t.Context(), batch[0].Lease); err != nil {
			t.Fatal(err)
		}
		if more, err := q.Dequeue(t.Context(), 1, time.Minute); err != nil || len(more) != 1 {
			t.Errorf("after the group: got %d messages, error %v", len(more), err)
		}
	})
}
