package queue_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/suitetest"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/limits"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/metered"
	"github.com/millrace/millrace/queue/queuetest"
)

var (
	seedsFlag = flag.Int("seeds", 0, "how many seeds of faults to run; 0 for the default")
	whole     = flag.Bool("whole", false, "measure how much of a concurrency is used for 20 minutes or 100 jobs in a row, not a quarter of that")
	firstSeed = flag.Int("first-seed", 0, "the first seed of faults to run, to run others than before")
)

// seeds returns how many seeds a test runs.
func seeds(long, short int) int {
	switch {
	case *seedsFlag > 0:
		return *seedsFlag
	case testing.Short():
		return short
	}
	return suitetest.Size(long/3, long)
}

// A queue under a rate that is never reached behaves as the queue does.
func TestConformanceUnderARate(t *testing.T) {
	queuetest.Run(t, queuetest.Harness{
		Bubble: true,
		Open: func(t *testing.T, name string) queue.Manager {
			engine := must(localqueue.New(nil))
			r := limits.Rate{Jobs: 50_000, Window: time.Minute, PerToken: 1000, Seed: 1}
			source := engine.Queue(queue.Name{Account: "local", Queue: "the-tokens"})
			if err := r.Init(context.Background(), source); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
			l, err := r.Open(context.Background(), source)
			if err != nil {
				t.Fatal(err)
			}
			return patient{l.Wrap(engine.Queue(queue.Name{Account: "local", Queue: name})).(queue.Manager)}
		},
	})
}

// patient waits while a token is fetched by another dequeue, as a listener does.
type patient struct{ queue.Manager }

func (p patient) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	for {
		batch, err := p.Manager.Dequeue(ctx, n, visibility)
		limit := (*queue.Error)(nil)
		if !errors.Is(err, queue.ErrLimited) || !errors.As(err, &limit) {
			return batch, err
		}
		time.Sleep(limit.RetryAfter)
	}
}

// uses records when jobs were fetched.
type uses struct {
	mu sync.Mutex
	at []time.Time // guarded by mu
}

func (u *uses) add(n int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for range n {
		u.at = append(u.at, time.Now())
	}
}

func (u *uses) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.at)
}

// used returns the share of a limit that was used between the first and the last use. All tokens are there at the
// start, so the uses come in bursts: the first one does not count.
func (u *uses) used(limit int, window time.Duration) float64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	slices.SortFunc(u.at, time.Time.Compare)
	windows := float64(u.at[len(u.at)-1].Sub(u.at[0])) / float64(window)
	return float64(len(u.at)-limit) / float64(limit) / windows
}

// worst returns the most uses within any window.
func (u *uses) worst(window time.Duration) (most int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	slices.SortFunc(u.at, time.Time.Compare)
	first := 0
	for last, at := range u.at {
		for at.Sub(u.at[first]) >= window {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

// instance fetches as much as it can until the end or its death, as a listener would.
func instance(ctx context.Context, q queue.Queue, pace time.Duration, u *uses) {
	for ctx.Err() == nil {
		batch, err := q.Dequeue(ctx, 32, 5*time.Minute)
		u.add(len(batch))
		wait := pace
		limit := (*queue.Error)(nil)
		switch {
		case errors.Is(err, faultqueue.ErrDead):
			return
		case errors.Is(err, queue.ErrLimited) && errors.As(err, &limit):
			wait = min(max(limit.RetryAfter, time.Millisecond), 30*time.Second)
		case err != nil:
			wait = time.Second
		case len(batch) == 0:
			wait = time.Second
		}
		waiting.For(wait, ctx.Done())
	}
}

// No window has more than the limit, whatever crashes, is lost, is throttled, comes late or twice. An instance that has
// died is replaced by one that knows nothing.
func TestARateIsNeverExceeded(t *testing.T) {
	most, used := 0, 0
	for seed := range seeds(300, 30) {
		seed += *firstSeed
		synctest.Test(t, func(t *testing.T) {
			b := tokensSetup(t)
			r := limits.Rate{Jobs: 100 + seed%3*50, Window: time.Duration(30+seed%20) * time.Second, PerToken: 1 + seed%2}
			b.put(1500)
			if err := r.Init(t.Context(), b.tokens); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 4*r.Window)
			defer cancel()
			var u uses
			var all sync.WaitGroup
			for i := range 3 {
				all.Go(func() {
					r := r // each instance has a seed of its own
					for life := uint64(0); ctx.Err() == nil; life++ {
						faults := faulty
						faults.Death = 0.005
						f := must(faultqueue.New(b.tokens, &faultqueue.Options{Seed: uint64(seed)<<8 + uint64(i)<<4 + life, Every: faults}))
						jobs := must(faultqueue.New(b.jobs, &faultqueue.Options{Seed: uint64(seed)<<8 + uint64(i)<<4 + life + 1000, Every: faulty}))
						r.Seed = uint64(seed*100+i)*100 + life + 1
						if l, err := r.Open(ctx, f); err == nil {
							instance(ctx, l.Wrap(jobs), time.Duration(seed%40)*10*time.Millisecond, &u)
						}
						f.Wait()
						jobs.Wait()
						time.Sleep(time.Duration(1+seed%5) * time.Second)
					}
				})
			}
			all.Wait()
			worst := u.worst(r.Window)
			if worst > r.Jobs {
				t.Errorf("seed %d: a window of %v has %d jobs, more than %d", seed, r.Window, worst, r.Jobs)
			}
			most, used = max(most, worst*100/r.Jobs), used+u.count()*100/(4*r.Jobs)
		})
	}
	t.Logf("the fullest window has %d %% of its limit; on average %d %% are used", most, used/seeds(300, 30))
	if most < 90 {
		t.Errorf("the fullest window has %d %% of its limit: this shows nothing", most)
	}
}

// Under full demand at least 90 % are used, by one process and by many, and tokens cost at most 0.05 requests a job
// at 100 jobs a token.
func TestARateIsUsed(t *testing.T) {
	if testing.Short() {
		t.Skip("plays hours")
	}
	for _, c := range []struct {
		instances, jobs, perToken int
		window                    time.Duration
	}{
		{1, 5000, 100, 30 * time.Second}, {5, 5000, 100, 30 * time.Second}, {50, 5000, 100, 30 * time.Second}, {50, 5000, 100, time.Minute},
		{10, 20_000, 100, 10 * time.Minute}, {3, 50, 1, 30 * time.Second}, {3, 10, 1, time.Minute},
	} {
		t.Run(fmt.Sprintf("%d instances, %d in %v", c.instances, c.jobs, c.window), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := tokensSetup(t)
				const windows = 12
				b.put(c.jobs * (windows + 1))
				r := limits.Rate{Jobs: c.jobs, Window: c.window, PerToken: c.perToken}
				if err := r.Init(t.Context(), b.tokens); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				m := new(metered.Meter)
				ctx, cancel := context.WithTimeout(t.Context(), windows*c.window)
				defer cancel()
				var u uses
				var all sync.WaitGroup
				for i := range c.instances {
					r.Seed = uint64(i + 1)
					l, err := r.Open(ctx, m.Wrap(b.tokens))
					if err != nil {
						t.Fatal(err)
					}
					all.Go(func() { instance(ctx, l.Wrap(b.jobs), 10*time.Millisecond, &u) })
				}
				all.Wait()
				used := u.used(c.jobs, c.window)
				requests := float64(m.Counts().Total().Requests) / float64(u.count())
				t.Logf("used %.1f %%, the fullest window has %d of %d, %.3f requests a job", 100*used, u.worst(c.window), c.jobs, requests)
				if worst := u.worst(c.window); worst > c.jobs {
					t.Errorf("a window has %d jobs, more than %d", worst, c.jobs)
				}
				if used < 0.9 {
					t.Errorf("%.1f %% of the limit are used, want 90 %%", 100*used)
				}
				if c.perToken == 100 && requests > 0.05 {
					t.Errorf("tokens cost %.3f requests a job, want at most 0.05", requests)
				}
			})
		})
	}
}

// Whole listeners with crashes and faults keep to the rate, and everything is handled.
func TestListenersKeepToARate(t *testing.T) {
	for seed := range seeds(20, 3) {
		seed += *firstSeed
		synctest.Test(t, func(t *testing.T) {
			b := tokensSetup(t)
			const jobs = 1000
			b.put(jobs)
			r := limits.Rate{Jobs: 200, Window: 30 * time.Second, PerToken: 4}
			if err := r.Init(t.Context(), b.tokens); err != nil {
				t.Fatal(err)
			}
			var u uses
			var handled sync.Map
			var reports atomic.Int64
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
			defer cancel()
			var all sync.WaitGroup
			for i := range 3 {
				all.Go(func() {
					r := r // each instance has a seed of its own
					for life := uint64(0); ctx.Err() == nil; life++ {
						s := uint64(seed)<<8 + uint64(i)<<4 + life
						f := must(faultqueue.New(b.tokens, &faultqueue.Options{Seed: s, Every: faultqueue.Rates{Throttled: 0.05, LostResponse: 0.05}}))
						r.Seed = s + 1
						l, err := r.Open(ctx, f)
						if err != nil {
							continue
						}
						work := listener.New(l.Wrap(b.jobs), func(_ context.Context, m *listener.Message[int]) error {
							handled.Store(m.Body, true)
							return nil
						}, &listener.Options[int]{
							Concurrency: 16, Seed: s + 1, Logger: slog.New(slog.DiscardHandler), Grace: time.Second,
							OnError:  func(error) { reports.Add(1) },
							Observer: listener.Observer{Received: func(batch []queue.Message) { u.add(len(batch)) }},
						})
						alive, die := context.WithTimeout(ctx, time.Duration(20+7*(i+int(life)))*time.Second)
						if err := work.Run(alive); err != nil {
							t.Error(err)
						}
						die()
						f.Wait()
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
			n := 0
			handled.Range(func(any, any) bool { n++; return true })
			if worst := u.worst(r.Window); n != jobs || worst > r.Jobs || took > 10*time.Minute {
				t.Errorf("seed %d: %d of %d jobs handled in %v, at most %d of %d in a window", seed, n, jobs, took, worst, r.Jobs)
			}
		})
	}
}

// An idle queue costs one request a poll and no token; a job that comes is fetched.
func TestAnIdleQueueCostsNoTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		r := limits.Rate{Jobs: 1000, Window: time.Minute, Seed: 1}
		if err := r.Init(t.Context(), b.tokens); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		m, jobs := new(metered.Meter), new(metered.Meter)
		l, err := r.Open(t.Context(), m.Wrap(b.tokens))
		if err != nil {
			t.Fatal(err)
		}
		q := l.Wrap(jobs.Wrap(b.jobs))
		for range 100 {
			if batch, err := q.Dequeue(t.Context(), 32, time.Minute); err != nil || len(batch) != 0 {
				t.Fatalf("got %d messages, error %v", len(batch), err)
			}
			time.Sleep(time.Second)
		}
		if of, in := m.Counts().Total().Requests, jobs.Counts().Total().Requests; of != 1 || in != 100 {
			t.Errorf("100 empty polls took %d requests of tokens and %d of jobs, want 1 (properties) and 100: %v", of, in, m.Counts())
		}
		b.put(10)
		if batch, err := q.Dequeue(t.Context(), 32, time.Minute); err != nil || len(batch) != 10 {
			t.Errorf("got %d messages, error %v; want 10", len(batch), err)
		}
	})
}

// A response that comes when its tokens can no longer be spent brings nothing: its messages go back.
func TestAResponseThatIsTooLateIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		r := limits.Rate{Jobs: 100, Window: 30 * time.Second, Seed: 1}
		if err := r.Init(t.Context(), b.tokens); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		l, err := r.Open(t.Context(), b.tokens)
		if err != nil {
			t.Fatal(err)
		}
		b.put(5)
		slow := must(faultqueue.New(b.jobs, &faultqueue.Options{
			Faults:      map[faultqueue.Op]faultqueue.Rates{faultqueue.Dequeue: {Slow: 1}},
			SlowLatency: faultqueue.Range{Min: 5 * time.Second, Max: 5 * time.Second},
		}))
		batch, err := l.Wrap(slow).Dequeue(t.Context(), 5, 10*time.Minute)
		if len(batch) != 0 || err == nil || errors.Is(err, queue.ErrLimited) {
			t.Errorf("got %d messages, error %v; want an error", len(batch), err)
		}
		if back, err := b.jobs.Peek(t.Context(), 32); err != nil || len(back) != 5 {
			t.Errorf("%d messages are visible, error %v; want 5", len(back), err)
		}
	})
}

// Tokens that somebody has deleted are missed, and not for ever waited for; a missing queue of tokens is not taken
// for a missing queue of jobs.
func TestMissingTokensAreNoticed(t *testing.T) {
	for _, dropped := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := tokensSetup(t)
			r := limits.Rate{Jobs: 100, Window: 30 * time.Second, Seed: 1}
			if err := r.Init(t.Context(), b.tokens); err != nil {
				t.Fatal(err)
			}
			l, err := r.Open(t.Context(), b.tokens)
			if err != nil {
				t.Fatal(err)
			}
			if dropped {
				err = b.tokens.Drop(t.Context())
			} else {
				err = b.tokens.Clear(t.Context())
			}
			if err != nil {
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

// The time to spend a token begins before the request: one whose response took longer is not spent.
func TestATokenThatComesLateIsNotSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		r := limits.Rate{Jobs: 100, Window: 30 * time.Second, Seed: 1}
		if err := r.Init(t.Context(), b.tokens); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		slow := must(faultqueue.New(b.tokens, &faultqueue.Options{
			Faults:      map[faultqueue.Op]faultqueue.Rates{faultqueue.Dequeue: {Slow: 1}},
			SlowLatency: faultqueue.Range{Min: 5 * time.Second, Max: 5 * time.Second},
		}))
		l, err := r.Open(t.Context(), slow)
		if err != nil {
			t.Fatal(err)
		}
		b.put(5)
		if batch, err := l.Wrap(b.jobs).Dequeue(t.Context(), 5, 10*time.Minute); !errors.Is(err, queue.ErrLimited) {
			t.Errorf("got %d messages, error %v; want a limit", len(batch), err)
		}
	})
}

// What is in the queue of tokens and is none is worth nothing, and removed: blanks that arrived late, tokens of an earlier
// set, and texts of others.
func TestWhatIsNoTokenIsWorthNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		r := limits.Rate{Jobs: 100, Window: 30 * time.Second, PerToken: 2, Seed: 1}
		if err := r.Init(t.Context(), b.tokens); err != nil {
			t.Fatal(err)
		}
		p, err := b.tokens.Properties(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		set := p.Metadata["millracetokens"]
		for _, text := range []string{
			"millrace-token/1 set=" + set + " blank", "millrace-token/1 set=earlier index=3", "hello",
			"millrace-token/1 set=" + set + " index=50", "millrace-token/1 set=" + set + " index=-1", "millrace-token/1 set=" + set + " index=07",
		} {
			if _, err := b.tokens.Enqueue(t.Context(), text, nil); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		l, err := r.Open(t.Context(), b.tokens)
		if err != nil {
			t.Fatal(err)
		}
		b.put(200)
		q, got := l.Wrap(b.jobs), 0
		for range 100 {
			batch, err := q.Dequeue(t.Context(), 32, time.Hour)
			if err != nil && !errors.Is(err, queue.ErrLimited) {
				t.Fatal(err)
			}
			got += len(batch)
			time.Sleep(10 * time.Millisecond)
		}
		if p, err := b.tokens.Properties(t.Context()); got != 100 || err != nil || p.Depth != 50 {
			t.Errorf("got %d jobs, want 100; %d messages are left, want 50 tokens; error %v", got, p.Depth, err)
		}
	})
}

// What a dequeue has reserved and not used stays with its token, even if another one looks at the tokens meanwhile.
func TestATokenKeepsWhatADequeueUnderWayDoesNotUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		r := limits.Rate{Jobs: 300, Window: 30 * time.Second, Seed: 1}
		if err := r.Init(t.Context(), b.tokens); err != nil {
			t.Fatal(err)
		}
		m := new(metered.Meter)
		l, err := r.Open(t.Context(), m.Wrap(b.tokens))
		if err != nil {
			t.Fatal(err)
		}
		empty := b.engine.Queue(queue.Name{Account: "acme", Queue: "empty"})
		if err := empty.Create(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		q, other := l.Wrap(delayed(b.jobs)), l.Wrap(empty)
		before := m.Counts().Total().Requests
		b.put(1)
		fetchOne(t, q, time.Hour)
		b.put(1)
		var all sync.WaitGroup
		all.Go(func() { // reserves the two jobs that the token is still worth
			if batch, err := q.Dequeue(t.Context(), 3, time.Hour); err != nil || len(batch) != 1 {
				t.Errorf("got %d messages, error %v; want one", len(batch), err)
			}
		})
		time.Sleep(roundTrip / 2)
		if _, err := other.Dequeue(t.Context(), 3, time.Hour); err != nil && !errors.Is(err, queue.ErrLimited) {
			t.Error(err)
		}
		all.Wait()
		b.put(1)
		asked := m.Counts().Total().Requests - before
		fetchOne(t, q, time.Hour)
		if n := m.Counts().Total().Requests - before; n != asked {
			t.Errorf("a job has cost %d requests for tokens, although one was left", n-asked)
		}
	})
}
