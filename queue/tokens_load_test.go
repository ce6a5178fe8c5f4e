package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/limits"
	"github.com/millrace/millrace/queue/metered"
	"github.com/millrace/millrace/wakeup"
)

// roundTrip is how long each request takes.
const roundTrip = 10 * time.Millisecond

// load is a run of listeners under a rate, with jobs that arrive at random.
type load struct {
	rate      limits.Rate
	percent   int // of the rate
	processes int
	wakeups   bool
	unlimited bool
	windows   int
	burst     int // jobs that come at once instead
}

// outcome is what a load measured.
type outcome struct {
	jobs   int
	p50    time.Duration // from the enqueue to the handler
	p99    time.Duration
	tokens float64 // requests for tokens, per job
	worst  int     // the most jobs within a window
}

func (o outcome) String() string {
	return fmt.Sprintf("%5d jobs, waits p50 %6.2f s, p99 %6.2f s, %.3f token requests per job",
		o.jobs, o.p50.Seconds(), o.p99.Seconds(), o.tokens)
}

// delayed returns a queue whose requests take roundTrip each.
func delayed(q queue.Manager) queue.Manager {
	return must(faultqueue.New(q, &faultqueue.Options{UsualLatency: faultqueue.Range{Min: roundTrip, Max: roundTrip}}))
}

// run plays a load. The processes start, and then the jobs arrive, at intervals that do not depend on each other.
func (c load) run(t *testing.T) (o outcome) {
	var waits []time.Duration
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		if err := c.rate.Init(t.Context(), b.tokens); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		m, bus := new(metered.Meter), new(wakeup.Bus)
		var u uses
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range c.processes {
			c.rate.Seed = uint64(i + 1)
			l, err := c.rate.Open(ctx, m.Wrap(delayed(b.tokens)))
			if err != nil {
				t.Fatal(err)
			}
			q := delayed(b.jobs)
			options := &listener.Options[time.Time]{Seed: uint64(i + 1), Logger: slog.New(slog.DiscardHandler)}
			if c.wakeups {
				options.Wakeups = bus
			}
			if !c.unlimited {
				q = l.Wrap(q).(queue.Manager)
			}
			work := listener.New(q, func(_ context.Context, m *listener.Message[time.Time]) error {
				u.add(1)
				mu.Lock()
				defer mu.Unlock()
				waits = append(waits, time.Since(m.Body))
				return nil
			}, options)
			all.Go(func() {
				if err := work.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(10 * time.Second)
		opened := m.Counts().Total().Requests
		random := rand.New(rand.NewPCG(1, uint64(c.percent)))
		per, jobs := 0.0, c.burst
		if jobs == 0 {
			per = float64(c.rate.Window) / float64(c.rate.Jobs) * 100 / float64(c.percent) // the mean interval
			jobs = c.rate.Jobs * c.windows * c.percent / 100
		}
		for range jobs {
			time.Sleep(time.Duration(random.ExpFloat64() * per))
			if _, err := b.jobs.Enqueue(t.Context(), strconv.Quote(time.Now().Format(time.RFC3339Nano)), nil); err != nil {
				t.Fatal(err)
			}
			_ = bus.Publish(t.Context(), b.jobs.Name(), 0, time.Time{})
		}
		for range 10 * 60 { // the last ones
			if u.count() == jobs {
				break
			}
			time.Sleep(time.Second)
		}
		o.tokens = float64(m.Counts().Total().Requests-opened) / float64(jobs)
		stop()
		all.Wait()
		slices.Sort(waits)
		o.jobs, o.worst = len(waits), u.worst(c.rate.Window)
		if o.jobs == 0 {
			t.Fatal("no job was handled")
		}
		o.p50, o.p99 = waits[o.jobs/2], waits[o.jobs*99/100]
		if o.jobs != jobs || o.worst > c.rate.Jobs && !c.unlimited {
			t.Errorf("%d of %d jobs were handled, at most %d of %d in a window", o.jobs, jobs, o.worst, c.rate.Jobs)
		}
	})
	return o
}

// Below its limit a rate delays no job by more than a request or two, and a job costs about a request for tokens, or
// less. At the limit they cost a tenth of that, from when the first window is full: so it is played for longer.
func TestARateBelowItsLimitDelaysNothing(t *testing.T) {
	rate := limits.Rate{Jobs: 300, Window: 30 * time.Second}
	counts, percents := []int{1, 4, 10}, []int{5, 25, 62, 100}
	if testing.Short() {
		counts, percents = counts[1:2], percents[1:3]
	}
	for _, processes := range counts {
		for _, wakeups := range []bool{false, true} {
			for _, percent := range percents {
				c := load{rate: rate, percent: percent, processes: processes, wakeups: wakeups, windows: 10}
				name := fmt.Sprintf("%d processes, wake-ups %-5v, load %3d %%", processes, wakeups, percent)
				if percent == 100 {
					c.windows = 20
					got := c.run(t)
					most := 0.1
					if processes == 10 { // of which each has a tenth of 100 tokens
						most = 0.14
					}
					if t.Logf("%s: %v", name, got); got.tokens > most {
						t.Errorf("%s: %.3f token requests per job, want at most %v", name, got.tokens, most)
					}
					continue
				}
				got := c.run(t)
				c.unlimited = true
				bare := c.run(t)
				t.Logf("%s: %v; without the limit p50 %.2f s, p99 %.2f s", name, got, bare.p50.Seconds(), bare.p99.Seconds())
				if got.tokens > 1.1 {
					t.Errorf("%s: %.3f token requests per job, want at most 1.1", name, got.tokens)
				}
				slack := 3 * roundTrip           // a token, a look if jobs are rare, and what is left of a request under way
				rarely := 150 * time.Millisecond // when polls are, and how long a worker waits for more jobs, depends on chance
				if !wakeups {
					slack = 100 * time.Millisecond
				}
				if processes == 10 && percent == 62 { // parts of ten tokens are unused: a wave of jobs may meet the limit
					got.p99 = 0
				}
				if got.p50 > bare.p50+slack || got.p99 > bare.p99+rarely {
					t.Errorf("%s: jobs wait longer than without the limit", name)
				}
			}
		}
	}
}

// crowd is ten listeners under a limit that is always full.
type crowd struct {
	init  func(*bundle) error
	open  func(b *bundle, seed uint64, source queue.Queue) (queue.Queue, []listener.Interceptor)
	job   time.Duration // how long a job takes
	ahead time.Duration // how long before the others the first listener starts; the others start 100 ms apart
	lasts time.Duration
}

// run returns how many jobs each listener has handled since the second one started, and how long the last one has
// waited for its first job.
func (c crowd) run(t *testing.T) (jobs [10]int, most int, last time.Duration, requests float64) {
	synctest.Test(t, func(t *testing.T) {
		b := tokensSetup(t)
		if err := c.init(b); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		b.put(40_000)
		ctx, stop := context.WithTimeout(t.Context(), c.ahead+c.lasts)
		defer stop()
		m := new(metered.Meter)
		var mu sync.Mutex
		var all sync.WaitGroup
		total := 0
		for i := range jobs {
			if i == 1 {
				time.Sleep(c.ahead)
				mu.Lock()
				jobs[0] = min(jobs[0], 1)
				mu.Unlock()
			}
			q, interceptors := c.open(b, uint64(i+1), m.Wrap(delayed(b.tokens)))
			begin := time.Now()
			work := listener.New(q, func(context.Context, *listener.Message[int]) error {
				mu.Lock()
				total++
				if jobs[i]++; jobs[i] == 1 {
					last = max(last, time.Since(begin))
				}
				mu.Unlock()
				time.Sleep(c.job)
				return nil
			}, &listener.Options[int]{Seed: uint64(i + 1), Logger: slog.New(slog.DiscardHandler), Interceptors: interceptors})
			all.Go(func() {
				if err := work.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(100 * time.Millisecond)
		}
		all.Wait()
		requests = float64(m.Counts().Total().Requests) / float64(total)
	})
	for _, n := range jobs {
		most += n
	}
	return jobs, 10 * 100 * slices.Max(jobs[:]) / most, last, requests
}

// Ten processes that start together share a concurrency immediately, and nine share it soon with one that has all of it.
func TestAConcurrencyIsSpread(t *testing.T) {
	for _, c := range []struct {
		limits.Concurrency
		ahead, job, last time.Duration
		most             int // jobs of one process, in percent of the mean
		none             int // processes that may have no job
	}{
		{limits.Concurrency{Jobs: 20}, 0, time.Second, 2 * time.Second, 150, 0},
		{limits.Concurrency{Jobs: 20}, 0, 10 * time.Second, 2 * time.Second, 150, 0},
		{limits.Concurrency{Jobs: 100}, 0, time.Second, 2 * time.Second, 200, 0},
		{limits.Concurrency{Jobs: 20}, 20 * time.Second, time.Second, 75 * time.Second, 400, 0},
		{limits.Concurrency{Jobs: 20}, 20 * time.Second, 10 * time.Second, 75 * time.Second, 450, 0}, // long jobs: turns are, too
		{limits.Concurrency{Jobs: 100}, 20 * time.Second, time.Second, 100 * time.Second, 600, 1},    // by the order of goroutines 173 to 464, and one of 130 runs had one without a job
	} {
		jobs, most, last, requests := crowd{
			init: func(b *bundle) error { return c.Init(b.Context(), b.tokens) },
			open: func(b *bundle, seed uint64, source queue.Queue) (queue.Queue, []listener.Interceptor) {
				c.Seed = seed
				l, _ := b.open(c.Concurrency, source)
				return l.Wrap(delayed(b.jobs)), []listener.Interceptor{slots.OfFleet(l.Begin, l.End)}
			},
			job: c.job, ahead: c.ahead, lasts: 100 * time.Second,
		}.run(t)
		t.Logf("%d jobs of %v at once, one process %v ahead: the first job after %5.1f s at most, %v, one has %d %% of the mean; %.3f requests a job",
			c.Jobs, c.job, c.ahead, last.Seconds(), jobs, most, requests)
		none := len(slices.DeleteFunc(slices.Clone(jobs[:]), func(n int) bool { return n > 0 }))
		if none > c.none || last > c.last || most > c.most {
			t.Errorf("want the first job within %v, at most %d %% of the mean, and %d without a job", c.last, c.most, c.none)
		}
	}
}

// Most of ten processes that start together share a rate that is always full, within ten windows.
func TestARateIsSpread(t *testing.T) {
	r := limits.Rate{Jobs: 300, Window: 30 * time.Second}
	jobs, most, last, requests := crowd{
		init: func(b *bundle) error { return r.Init(b.Context(), b.tokens) },
		open: func(b *bundle, seed uint64, source queue.Queue) (queue.Queue, []listener.Interceptor) {
			r.Seed = seed
			l, err := r.Open(b.Context(), source)
			if err != nil {
				b.Fatal(err)
			}
			return l.Wrap(delayed(b.jobs)), nil
		},
		lasts: 5 * time.Minute,
	}.run(t)
	t.Logf("the first job after %.1f s at most, %v, one has %d %% of the mean; %.3f requests a job", last.Seconds(), jobs, most, requests)
	none := 0
	for _, n := range jobs {
		if n == 0 {
			none++
		}
	}
	if none > 3 || most > 400 {
		t.Errorf("%d processes have no job, and one has %d %% of the mean; want at most 3, and 400 %%", none, most)
	}
}

// A burst that the limit allows runs immediately, in however many processes, and whether tokens are left in some of them.
func TestABurstBelowARateRunsImmediately(t *testing.T) {
	for _, processes := range []int{1, 4, 10} {
		for _, wakeups := range []bool{false, true} {
			c := load{rate: limits.Rate{Jobs: 400, Window: 30 * time.Second}, processes: processes, wakeups: wakeups, burst: 300}
			got := c.run(t)
			c.unlimited = true
			bare := c.run(t)
			t.Logf("%d processes, wake-ups %v: %v; without the limit p99 %.2f s", processes, wakeups, got, bare.p99.Seconds())
			if got.p99 > bare.p99+time.Second {
				t.Errorf("%d processes, wake-ups %v: jobs wait for %v, want at most a second more than %v", processes, wakeups, got.p99, bare.p99)
			}
		}
	}
}
