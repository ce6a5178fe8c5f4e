package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/limits"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/metered"
	"github.com/millrace/millrace/queue/queuetest"
)

// keep runs a limit until the test ends.
func keep(t *testing.T, l *limits.ConcurrencyLimit) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	synctest.Wait()
	return stop
}

// limit sets up a limit of concurrency whose tokens can be taken.
func (b *bundle) limit(c limits.Concurrency) {
	if err := c.Init(b.Context(), b.tokens); err != nil {
		b.Fatal(err)
	}
	time.Sleep(10 * time.Second)
}

// open opens a limit and keeps it until the test ends.
func (b *bundle) open(c limits.Concurrency, q queue.Queue) (l *limits.ConcurrencyLimit, stop func()) {
	l, err := c.Open(b.Context(), q)
	if err != nil {
		b.Fatal(err)
	}
	return l, keep(b.T, l)
}

// visible returns how many tokens are visible.
func (b *bundle) visible() int {
	batch, err := b.tokens.Peek(b.Context(), queue.MaxBatch)
	if err != nil {
		b.Fatal(err)
	}
	return len(batch)
}

// A queue under a limit of concurrency that is never reached behaves as the queue does.
func TestConformanceUnderConcurrency(t *testing.T) {
	if testing.Short() {
		t.Skip("the conformance of a rate runs")
	}
	queuetest.Run(t, queuetest.Harness{
		Bubble: true,
		Open: func(t *testing.T, name string) queue.Manager {
			engine := must(localqueue.New(nil))
			c := limits.Concurrency{Jobs: 50_000, PerToken: 1000, Seed: 1}
			source := engine.Queue(queue.Name{Account: "local", Queue: "the-tokens"})
			if err := c.Init(context.Background(), source); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			l, err := c.Open(context.Background(), source)
			if err != nil {
				t.Fatal(err)
			}
			keep(t, l)
			return patient{l.Wrap(engine.Queue(queue.Name{Account: "local", Queue: name})).(queue.Manager)}
		},
	})
}

// gauge counts the handlers that run in all processes.
type gauge struct {
	mu    sync.Mutex
	now   int           // guarded by mu
	most  int           // guarded by mu
	total int           // handlers begun; guarded by mu
	area  time.Duration // sum of the times of all; guarded by mu
	at    time.Time     // when area was brought up to date; guarded by mu
}

func (g *gauge) add(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.area += time.Duration(g.now) * time.Since(g.at)
	g.at = time.Now()
	g.now += n
	g.most = max(g.most, g.now)
	g.total += max(n, 0)
}

// used returns the share of a limit that was used since then.
func (g *gauge) used(limit int, since time.Time) float64 {
	g.add(0)
	g.mu.Lock()
	defer g.mu.Unlock()
	return float64(g.area) / float64(time.Since(since)) / float64(limit)
}

// begun returns how many handlers have begun.
func (g *gauge) begun() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.total
}

// process is a process that fetches jobs by hand.
type process struct {
	limit   *limits.ConcurrencyLimit
	queue   queue.Queue
	slots   int
	length  func(n int) time.Duration // of a handler
	react   time.Duration             // how long a handler goes on after its context has ended
	running *gauge
	died    <-chan struct{} // handlers have ended then
}

// work handles jobs until the end or its death.
func (p *process) work(ctx context.Context) {
	var handlers sync.WaitGroup
	defer handlers.Wait()
	slots := make(chan struct{}, p.slots)
	for n := 0; ctx.Err() == nil; {
		free := p.slots - len(slots)
		var batch []queue.Message
		var err error
		wait := 20 * time.Millisecond
		if free > 0 {
			batch, err = p.queue.Dequeue(ctx, min(free, queue.MaxBatch), 2*time.Minute)
			limit := (*queue.Error)(nil)
			switch {
			case errors.Is(err, queue.ErrLimited) && errors.As(err, &limit):
				wait = min(max(limit.RetryAfter, time.Millisecond), 30*time.Second)
			case err != nil || len(batch) == 0:
				wait = time.Second
			}
		}
		for _, m := range batch {
			n++
			number := n
			slots <- struct{}{}
			handlers.Go(func() {
				defer func() { <-slots }()
				p.handle(ctx, number, m)
			})
		}
		select {
		case <-time.After(wait):
		case <-p.died:
			return
		case <-ctx.Done():
		}
	}
}

func (p *process) handle(ctx context.Context, n int, m queue.Message) {
	d := dispatcher.Delivery{Queue: p.queue.Name(), ID: m.ID, DequeueCount: m.DequeueCount}
	err := slots.OfFleet(p.limit.Begin, p.limit.End)(ctx, d, func(ctx context.Context) error {
		p.running.add(1)
		defer p.running.add(-1)
		select {
		case <-time.After(p.length(n)):
			return nil
		case <-p.died:
		case <-ctx.Done():
			waiting.For(p.react, p.died)
		}
		return context.Cause(ctx)
	})
	if err != nil {
		_, _ = p.queue.Update(context.WithoutCancel(ctx), m.Lease, m.Text, 0)
		return
	}
	_ = p.queue.Delete(context.WithoutCancel(ctx), m.Lease)
}

// There are never more handlers than the limit has, whatever crashes, is lost, is throttled, comes late or twice. An
// instance that has died is replaced by one that knows nothing.
func TestAConcurrencyIsNeverExceeded(t *testing.T) {
	if testing.Short() {
		t.Skip("plays many worlds")
	}
	full, used := 0, 0.0
	for seed := range seeds(300, 20) {
		seed += *firstSeed
		synctest.Test(t, func(t *testing.T) {
			b := tokensSetup(t)
			c := limits.Concurrency{Jobs: 6 + seed%4*2, PerToken: 1 + seed%3}
			b.put(1000)
			b.limit(c)
			most := c.Jobs / c.PerToken * c.PerToken
			begin := time.Now()
			g := &gauge{at: begin}
			ctx, cancel := context.WithTimeout(t.Context(), 6*time.Minute)
			defer cancel()
			var all sync.WaitGroup
			for i := range 3 {
				all.Go(func() {
					for life := 0; ctx.Err() == nil; life++ {
						b.live(ctx, c, uint64(seed)<<8+uint64(i)<<5+uint64(life), g)
						time.Sleep(time.Duration(1+seed%5) * time.Second)
					}
				})
			}
			all.Wait()
			if g.most > most {
				t.Errorf("seed %d: %d handlers at once, more than %d", seed, g.most, most)
			}
			if g.most == most {
				full++
			}
			used += g.used(most, begin)
		})
	}
	n := seeds(300, 20)
	t.Logf("in %d of %d runs the limit was reached; on average %.0f %% are used", full, n, 100*used/float64(n))
	if full < n/2 {
		t.Errorf("in %d of %d runs the limit was reached: this shows nothing", full, n)
	}
}

// live is the life of a process, to its death or its end.
func (b *bundle) live(ctx context.Context, c limits.Concurrency, seed uint64, g *gauge) {
	faults := faulty
	faults.Death = 0.01
	f := must(faultqueue.New(b.tokens, &faultqueue.Options{Seed: seed, Every: faults}))
	jobs := must(faultqueue.New(b.jobs, &faultqueue.Options{Seed: seed + 1000, Every: faulty}))
	defer f.Wait()
	defer jobs.Wait()
	c.Seed = seed + 1
	l, err := c.Open(ctx, f)
	if err != nil {
		return
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p := &process{
		limit: l, queue: l.Wrap(jobs), slots: 4 + int(seed%5), running: g, died: f.Died(),
		length: func(n int) time.Duration { return time.Duration(1+(n*7+int(seed))%40) * time.Second },
		react:  time.Duration(seed%13) * time.Second,
	}
	var parts sync.WaitGroup
	parts.Go(func() {
		select {
		case <-f.Died():
			l.Halt()
			jobs.Kill()
			stop()
		case <-ctx.Done():
		}
	})
	parts.Go(func() {
		if err := l.Run(ctx); err != nil {
			b.Error(err)
		}
	})
	p.work(ctx)
	stop()
	parts.Wait()
}

// Under full demand at least 90 % are used, by one process and by many, and it costs few requests.
func TestAConcurrencyIsUsed(t *testing.T) {
	if testing.Short() {
		t.Skip("plays hours")
	}
	for _, c := range []struct {
		instances, jobs, perToken int
		length                    time.Duration
		perJob                    float64 // requests
	}{
		{1, 100, 10, time.Second, 0.02}, {1, 10, 10, 5 * time.Second, 0.1}, {4, 100, 5, 2 * time.Second, 0.1}, {20, 200, 4, 3 * time.Second, 0.2},
		{1, 20, 1, time.Minute, 6}, {3, 20, 2, time.Minute, 6}, {2, 20, 20, 500 * time.Millisecond, 0.02},
		{1, 40, 20, 5 * time.Minute, 2},
	} {
		t.Run(fmt.Sprintf("%d instances, %d jobs of %v", c.instances, c.jobs, c.length), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := tokensSetup(t)
				lasts := max(20*time.Minute, 100*c.length)
				if !*whole {
					lasts = max(5*time.Minute, 25*c.length)
				}
				b.put(int(1.1 * float64(c.jobs) * float64(lasts) / float64(c.length)))
				limit := limits.Concurrency{Jobs: c.jobs, PerToken: c.perToken}
				b.limit(limit)
				m := new(metered.Meter)
				begin := time.Now()
				g := &gauge{at: begin}
				ctx, cancel := context.WithTimeout(t.Context(), lasts)
				defer cancel()
				var all sync.WaitGroup
				for i := range c.instances {
					limit.Seed = uint64(i + 1)
					l, _ := b.open(limit, m.Wrap(b.tokens))
					p := &process{limit: l, queue: l.Wrap(b.jobs), slots: c.jobs, running: g, length: func(int) time.Duration { return c.length }}
					all.Go(func() { p.work(ctx) })
				}
				<-ctx.Done()
				used, requests := g.used(c.jobs, begin), float64(m.Counts().Total().Requests)/float64(g.begun())
				all.Wait()
				t.Logf("used %.1f %%, at most %d at once, %.4f requests a job, %.2f a second", 100*used, g.most, requests, float64(m.Counts().Total().Requests)/lasts.Seconds())
				if g.most > c.jobs {
					t.Errorf("%d handlers at once, more than %d", g.most, c.jobs)
				}
				if used < 0.9 {
					t.Errorf("%.1f %% of the limit are used, want 90 %%", 100*used)
				}
				if requests > c.perJob {
					t.Errorf("tokens cost %.3f requests a job, want at most %v", requests, c.perJob)
				}
			})
		})
	}
}

// A process that has all tokens gives some of them back, so that one that comes later gets its part.
func TestNobodyStarves(t *testing.T) {
	if testing.Short() {
		t.Skip("plays hours")
	}
	for _, perToken := range []int{1, 4, 20} {
		synctest.Test(t, func(t *testing.T) {
			b := tokensSetup(t)
			b.put(20_000)
			c := limits.Concurrency{Jobs: 20, PerToken: perToken}
			b.limit(c)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
			defer cancel()
			var all sync.WaitGroup
			var gauges [3]gauge
			for i := range gauges {
				c.Seed = uint64(i + 1)
				l, _ := b.open(c, b.tokens)
				p := &process{limit: l, queue: l.Wrap(b.jobs), slots: 20, running: &gauges[i], length: func(int) time.Duration { return 2 * time.Second }}
				all.Go(func() { p.work(ctx) })
				time.Sleep(time.Minute)
			}
			all.Wait()
			total := gauges[0].total + gauges[1].total + gauges[2].total
			t.Logf("%d jobs a token: the handlers of the three were %d, %d and %d", perToken, gauges[0].total, gauges[1].total, gauges[2].total)
			for i := range gauges {
				if part := float64(gauges[i].total) / float64(total); part < 0.15 {
					t.Errorf("%d jobs a token: process %d has handled %.0f %% of the jobs, want a third or so", perToken, i, 100*part)
				}
			}
		})
	}
}

// An idle queue costs one request a poll, and what was needed goes back: others can have it, and a job that comes is
// fetched.
func TestAnIdleProcessHoldsNoTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		c := limits.Concurrency{Jobs: 10, PerToken: 1, Seed: 1}
		b.limit(c)
		m, jobs := new(metered.Meter), new(metered.Meter)
		l, _ := b.open(c, m.Wrap(b.tokens))
		q := l.Wrap(jobs.Wrap(b.jobs))
		for range 100 {
			if batch, err := q.Dequeue(t.Context(), 32, time.Minute); err != nil || len(batch) != 0 {
				t.Fatalf("got %d messages, error %v", len(batch), err)
			}
			time.Sleep(time.Second)
		}
		if of, in := m.Counts().Total().Requests, jobs.Counts().Total().Requests; of != 3 || in != 100 {
			t.Errorf("100 empty polls took %d requests of tokens and %d of jobs, want 3 (properties, a token, which goes back) and 100: %v", of, in, m.Counts())
		}
		b.put(10)
		got := 0
		for range 5 {
			batch, err := q.Dequeue(t.Context(), 32, time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			for _, one := range batch {
				got++
				if err := q.Delete(t.Context(), one.Lease); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got != 5 { // there is nobody whose messages would be many: one token after the other
			t.Logf("got %d jobs in five polls", got)
		}
		time.Sleep(20 * time.Second)
		if n := b.visible(); got == 0 || n != 10 {
			t.Errorf("got %d jobs; %d tokens are visible, want 10", got, n)
		}
	})
}
