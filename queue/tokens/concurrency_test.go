package tokens_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/meter"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/queuetest"
	"github.com/millrace/millrace/queue/tokens"
)

// keep runs a limit until the test ends.
func keep(t *testing.T, l *tokens.ConcurrencyLimit) (stop func()) {
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
func (b *bundle) limit(c tokens.Concurrency) {
	if err := c.Init(b.Context(), b.tokens); err != nil {
		b.Fatal(err)
	}
	time.Sleep(10 * time.Second)
}

// open opens a limit and keeps it until the test ends.
func (b *bundle) open(c tokens.Concurrency, q queue.Queue) (l *tokens.ConcurrencyLimit, stop func()) {
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
	queuetest.Run(t, queuetest.Harness{
		Bubble: true,
		Open: func(t *testing.T, name string) queue.Manager {
			engine := localqueue.New(nil)
			c := tokens.Concurrency{Jobs: 50_000, PerToken: 1000, Seed: 1}
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
			return l.Wrap(engine.Queue(queue.Name{Account: "local", Queue: name})).(queue.Manager)
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

// process is a process that fetches jobs by hand.
type process struct {
	limit   *tokens.ConcurrencyLimit
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
			limit := (*queue.LimitedError)(nil)
			switch {
			case errors.As(err, &limit):
				wait = min(max(limit.After, time.Millisecond), 30*time.Second)
			case err != nil || len(batch) == 0:
				wait = time.Second
			}
		}
		for _, m := range batch {
			n++
			slots <- struct{}{}
			handlers.Go(func() {
				defer func() { <-slots }()
				p.handle(ctx, n, m)
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
	err := p.limit.Intercept(ctx, d, func(ctx context.Context) error {
		p.running.add(1)
		defer p.running.add(-1)
		select {
		case <-time.After(p.length(n)):
			return nil
		case <-p.died:
		case <-ctx.Done():
			select {
			case <-time.After(p.react):
			case <-p.died:
			}
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
	full, used := 0, 0.0
	for seed := range seeds(300, 20) {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t)
			c := tokens.Concurrency{Jobs: 6 + seed%4*2, PerToken: 1 + seed%3}
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
func (b *bundle) live(ctx context.Context, c tokens.Concurrency, seed uint64, g *gauge) {
	faults := faulty
	faults.Death = 0.01
	f := faultqueue.New(b.tokens, &faultqueue.Options{Seed: seed, Every: faults})
	jobs := faultqueue.New(b.jobs, &faultqueue.Options{Seed: seed + 1000, Every: faulty})
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
				b := setup(t)
				lasts := max(20*time.Minute, 100*c.length)
				b.put(int(1.1 * float64(c.jobs) * float64(lasts) / float64(c.length)))
				limit := tokens.Concurrency{Jobs: c.jobs, PerToken: c.perToken}
				b.limit(limit)
				m := meter.New()
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
				used, requests := g.used(c.jobs, begin), float64(m.Counts().Total().Requests)/float64(g.total)
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
	for _, perToken := range []int{1, 4, 20} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t)
			b.put(20_000)
			c := tokens.Concurrency{Jobs: 20, PerToken: perToken}
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
		b := setup(t)
		c := tokens.Concurrency{Jobs: 10, PerToken: 1, Seed: 1}
		b.limit(c)
		m, jobs := meter.New(), meter.New()
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

// stubborn is a queue of tokens whose updates fail from a time on.
type stubborn struct {
	queue.Queue
	one bool // only those of one token
	mu  sync.Mutex
	err error    // guarded by mu
	id  queue.ID // the one; guarded by mu
}

func (s *stubborn) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

func (s *stubborn) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	s.mu.Lock()
	err := s.err
	if s.id == "" && err != nil {
		s.id = l.ID
	}
	other := s.one && s.id != l.ID
	s.mu.Unlock()
	if err != nil && !other {
		return l, err
	}
	return s.Queue.Update(ctx, l, text, visibility)
}

// A handler whose token cannot be renewed ends before another can have that, by its context, and its error is no attempt;
// nothing starts meanwhile under a token that is lost. The others go on.
func TestHandlersEndBeforeTheirTokenDoes(t *testing.T) {
	for what, failure := range map[string]error{"unavailable": queue.ErrUnavailable, "lost": queue.ErrReceiptMismatch} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t)
			c := tokens.Concurrency{Jobs: 2, PerToken: 2, Seed: 1}
			b.limit(c)
			s := &stubborn{Queue: b.tokens}
			l, _ := b.open(c, s)
			b.put(2)
			q := l.Wrap(b.jobs)
			batch, err := q.Dequeue(t.Context(), 1, 10*time.Minute)
			if err != nil || len(batch) != 1 {
				t.Fatalf("got %d messages, error %v", len(batch), err)
			}
			s.fail(failure)
			begin := time.Now()
			d := dispatcher.Delivery{Queue: q.Name(), ID: batch[0].ID, DequeueCount: 1}
			err = l.Intercept(t.Context(), d, func(ctx context.Context) error {
				time.Sleep(30 * time.Second) // since the first renewal
				if what == "lost" {
					if more, err := q.Dequeue(ctx, 1, time.Minute); !errors.Is(err, queue.ErrLimited) {
						t.Errorf("%s: got %d messages, error %v; want none under a token that is lost", what, len(more), err)
					}
				}
				<-ctx.Done()
				if took := time.Since(begin); took < 44*time.Second || took > 46*time.Second || b.visible() != 0 {
					t.Errorf("%s: the handler ends after %v, want 15 s before the end of the lease", what, took)
				}
				if !errors.Is(context.Cause(ctx), tokens.ErrTokenLost) {
					t.Errorf("%s: the cause is %v", what, context.Cause(ctx))
				}
				return errors.New("interrupted")
			})
			if r := dispatcher.ResultOf(err); r.Outcome != dispatcher.Snoozed {
				t.Errorf("%s: got result %+v, want a snooze", what, r)
			}
			if more, err := q.Dequeue(t.Context(), 1, time.Minute); !errors.Is(err, queue.ErrLimited) {
				t.Errorf("%s: got %d messages, error %v; want no token", what, len(more), err)
			}
		})
	}
}

// When a token is lost so many handlers end as it was worth: the newest.
func TestOneLostTokenEndsOnlyWhatItWasWorth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		c := tokens.Concurrency{Jobs: 4, PerToken: 2, Seed: 1}
		b.limit(c)
		s := &stubborn{Queue: b.tokens, one: true}
		l, _ := b.open(c, s)
		b.put(4)
		q := l.Wrap(b.jobs)
		ctx, stop := context.WithCancel(t.Context())
		var handlers sync.WaitGroup
		var lost [4]bool
		for n := 0; n < 4; time.Sleep(100 * time.Millisecond) {
			batch, err := q.Dequeue(t.Context(), 1, 10*time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range batch {
				i := n
				n++
				handlers.Go(func() {
					d := dispatcher.Delivery{Queue: q.Name(), ID: m.ID, DequeueCount: 1}
					_ = l.Intercept(ctx, d, func(ctx context.Context) error {
						<-ctx.Done()
						lost[i] = errors.Is(context.Cause(ctx), tokens.ErrTokenLost)
						return nil
					})
				})
			}
		}
		s.fail(queue.ErrReceiptMismatch)
		time.Sleep(58 * time.Second)
		stop()
		handlers.Wait()
		if lost != [4]bool{2: true, 3: true} {
			t.Errorf("of four handlers these have ended: %v, want the last two", lost)
		}
	})
}

// A process that stops gives its tokens back at once when its handlers have returned, and starts none meanwhile.
func TestAStopGivesTheTokensBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		c := tokens.Concurrency{Jobs: 4, PerToken: 1, Seed: 1}
		b.limit(c)
		l, stop := b.open(c, b.tokens)
		b.put(4)
		q := l.Wrap(b.jobs)
		var fetched []queue.Message
		for len(fetched) < 4 {
			batch, err := q.Dequeue(t.Context(), 4, 10*time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			fetched = append(fetched, batch...)
			time.Sleep(100 * time.Millisecond)
		}
		delivery := func(i int) dispatcher.Delivery {
			return dispatcher.Delivery{Queue: q.Name(), ID: fetched[i].ID, DequeueCount: 1}
		}
		_ = l.Intercept(t.Context(), delivery(0), func(ctx context.Context) error {
			var stopped sync.WaitGroup
			stopped.Go(stop)
			time.Sleep(5 * time.Minute)
			if ctx.Err() != nil || b.visible() != 3 {
				t.Errorf("while one handler runs %d tokens are visible, want 3; its context: %v", b.visible(), ctx.Err())
			}
			err := l.Intercept(ctx, delivery(1), func(context.Context) error {
				t.Error("a handler starts after the stop")
				return nil
			})
			if r := dispatcher.ResultOf(err); r.Outcome != dispatcher.Snoozed {
				t.Errorf("got result %+v, want a snooze", r)
			}
			if _, err := q.Dequeue(ctx, 1, time.Minute); !errors.Is(err, queue.ErrLimited) {
				t.Errorf("a dequeue after the stop: got error %v, want a limit", err)
			}
			return nil
		})
		stop()
		if n := b.visible(); n != 4 {
			t.Errorf("after the stop %d tokens are visible, want 4", n)
		}
	})
}

// A handler that does not end does not keep Run from returning for ever.
func TestAHandlerThatIsStuckDoesNotHoldUpTheStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		c := tokens.Concurrency{Jobs: 1, Seed: 1}
		b.limit(c)
		l, stop := b.open(c, b.tokens)
		ctx, cancel := context.WithCancel(t.Context())
		b.put(1)
		q := l.Wrap(b.jobs)
		batch, err := q.Dequeue(ctx, 1, time.Hour)
		if err != nil || len(batch) != 1 {
			t.Fatalf("got %d messages, error %v", len(batch), err)
		}
		_ = l.Intercept(ctx, dispatcher.Delivery{Queue: q.Name(), ID: batch[0].ID, DequeueCount: 1}, func(context.Context) error {
			cancel()
			stop() // returns while the handler runs
			return nil
		})
	})
}

// What a listener settles without calling a handler leaves its room; so does what it forgets, when the lease ends.
func TestWhatNeverStartsLeavesItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		c := tokens.Concurrency{Jobs: 1, Seed: 1}
		b.limit(c)
		l, _ := b.open(c, b.tokens)
		b.put(5)
		q := l.Wrap(b.jobs)
		fetch := func() queue.Message {
			t.Helper()
			for range 200 {
				batch, err := q.Dequeue(t.Context(), 32, 30*time.Second)
				if len(batch) == 1 {
					return batch[0]
				}
				if !errors.Is(err, queue.ErrLimited) {
					t.Fatalf("got %d messages, error %v", len(batch), err)
				}
				time.Sleep(time.Second)
			}
			t.Fatal("there is no room for ever")
			return queue.Message{}
		}
		full := func() {
			t.Helper()
			if batch, err := q.Dequeue(t.Context(), 1, time.Minute); !errors.Is(err, queue.ErrLimited) {
				t.Fatalf("got %d messages, error %v; want a limit", len(batch), err)
			}
		}
		because := func(c queue.Cause) context.Context { return queue.WithCause(t.Context(), c) }
		m := fetch()
		full()
		if _, err := q.Update(because(queue.CauseGiveBack), m.Lease, m.Text, time.Hour); err != nil {
			t.Fatal(err)
		}
		m = fetch()
		if err := q.Delete(because(queue.CausePoison), m.Lease); err != nil {
			t.Fatal(err)
		}
		m = fetch()
		for range 5 { // renewed, it keeps its room
			time.Sleep(20 * time.Second)
			var err error
			if m.Lease, err = q.Update(because(queue.CauseRenew), m.Lease, m.Text, 30*time.Second); err != nil {
				t.Fatal(err)
			}
			full()
		}
		begin := time.Now()
		fetch()
		if took := time.Since(begin); took < 30*time.Second || took > 40*time.Second {
			t.Errorf("what was forgotten left its room after %v, want 30 s", took)
		}
	})
}

// Mistakes in the use are errors that say what to do.
func TestConcurrencyMistakesAreSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		for want, c := range map[string]tokens.Concurrency{
			"Concurrency.Jobs is 0":     {},
			"it must be 1 to Jobs":      {Jobs: 3, PerToken: 4},
			"Concurrency.PerToken is -": {Jobs: 3, PerToken: -1},
			"raise Concurrency":         {Jobs: 1e7, PerToken: 1},
		} {
			if _, err := c.Open(t.Context(), nil); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: got error %v, want one with %q", c, err, want)
			}
		}
		c := tokens.Concurrency{Jobs: 200, PerToken: 100, Seed: 1}
		b.limit(c)
		r := tokens.Rate{Jobs: 100, Window: time.Minute}
		if err := r.Init(t.Context(), b.tokens); err == nil || !strings.Contains(err.Error(), "200 jobs at once, 100 a token") {
			t.Errorf("a rate with these tokens: got error %v", err)
		}
		l, err := c.Open(t.Context(), b.tokens)
		if err != nil {
			t.Fatal(err)
		}
		q := l.Wrap(b.jobs)
		if _, err := q.Dequeue(t.Context(), 1, time.Minute); !errors.Is(err, queue.ErrLimited) {
			t.Errorf("just before Run: got error %v, want a limit", err)
		}
		time.Sleep(10 * time.Second)
		if _, err := q.Dequeue(t.Context(), 1, time.Minute); err == nil || !strings.Contains(err.Error(), "Run was not called") {
			t.Errorf("long before Run: got error %v", err)
		}
		keep(t, l)
		synctest.Wait()
		b.put(150)
		said := 0
		for range 20 {
			batch, err := q.Dequeue(t.Context(), 32, time.Minute)
			if err != nil && strings.Contains(err.Error(), "Interceptors of the listener") {
				said++
			}
			for _, m := range batch {
				if err := q.Delete(queue.WithCause(t.Context(), queue.CauseDelete), m.Lease); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
		}
		if said != 1 {
			t.Errorf("it was said %d times that the interceptor is missing, want once", said)
		}
		if err := l.Run(t.Context()); err == nil {
			t.Error("a second Run has no error")
		}
	})
}

// Tokens that somebody has deleted are missed, and not for ever waited for; a missing queue of tokens is not taken
// for a missing queue of jobs.
func TestVanishedTokensOfAConcurrencyAreNoticed(t *testing.T) {
	for _, dropped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t)
			c := tokens.Concurrency{Jobs: 10, Seed: 1}
			b.limit(c)
			l, _ := b.open(c, b.tokens)
			vanish := b.tokens.Clear
			if dropped {
				vanish = b.tokens.Drop
			}
			if err := vanish(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.put(1)
			q := l.Wrap(b.jobs)
			for begin := time.Now(); time.Since(begin) < 10*time.Minute; time.Sleep(time.Second) {
				_, err := q.Dequeue(t.Context(), 1, time.Minute)
				if err == nil || errors.Is(err, queue.ErrQueueMissing) {
					t.Fatalf("got error %v", err)
				}
				if !errors.Is(err, queue.ErrLimited) {
					return
				}
			}
			t.Error("nobody has noticed for ten minutes")
		})
	}
}

// A queue of tokens that fails is not asked at each dequeue.
func TestAFailingQueueOfTokensIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		c := tokens.Concurrency{Jobs: 10, Seed: 1}
		b.limit(c)
		m := meter.New()
		f := faultqueue.New(b.tokens, &faultqueue.Options{Faults: map[faultqueue.Op]faultqueue.Rates{faultqueue.Dequeue: {Throttled: 1}}})
		l, _ := b.open(c, m.Wrap(f))
		q := l.Wrap(b.jobs)
		b.put(1)
		failed := 0
		for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
			if _, err := q.Dequeue(t.Context(), 1, time.Minute); errors.Is(err, queue.ErrThrottled) {
				failed++
			}
		}
		if n := m.Counts().Total().Requests; failed == 0 || n > 12 {
			t.Errorf("in 10 s %d dequeues failed and %d requests were sent, want about 10", failed, n)
		}
	})
}
