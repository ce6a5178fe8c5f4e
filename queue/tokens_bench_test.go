//go:build unix

package queue_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/limits"
	"github.com/millrace/millrace/queue/localqueue"
)

// processorTime returns what this process has used of the processors. Unlike time that has passed it does not depend on
// what else a machine does, and a worker whose processors are busy does as much as its jobs leave.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// wrapping puts a limit around a queue, and stops it at the end.
type wrapping func(*localqueue.Engine, queue.Queue) (q queue.Queue, is []listener.Interceptor, stop func())

// work lets a listener handle n jobs of a queue in memory and returns how long that takes, and how much of the processors.
func work(b *testing.B, n int, wrap wrapping) (took, used time.Duration) {
	engine := must(localqueue.New(nil))
	jobs := engine.Queue(queue.Name{Account: "acme", Queue: "jobs"})
	if err := jobs.Create(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	for i := range n {
		if _, err := jobs.Enqueue(b.Context(), strconv.Itoa(i), nil); err != nil {
			b.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	var handled atomic.Int64
	limited, interceptors, end := wrap(engine, jobs)
	defer end()
	l := listener.New(limited, func(context.Context, *listener.Message[int]) error {
		if handled.Add(1) == int64(n) {
			stop()
		}
		return nil
	}, &listener.Options[int]{Logger: slog.New(slog.DiscardHandler), Interceptors: interceptors})
	runtime.GC() // what others have left
	begin, before := time.Now(), processorTime(b)
	if err := l.Run(ctx); err != nil {
		b.Fatal(err)
	}
	return time.Since(begin), processorTime(b) - before
}

func unlimited(_ *localqueue.Engine, q queue.Queue) (queue.Queue, []listener.Interceptor, func()) {
	return q, nil, func() {}
}

// BenchmarkCost compares a listener without a limit with one under a limit of twice what it does, in turns, and takes the
// best of each. It prints the cost of each limit in percent of the processor time, and what it adds to a job. Give it many rounds: -benchtime 20x.
func BenchmarkCost(b *testing.B) {
	const n = 20_000
	work(b, n, unlimited)
	took, _ := work(b, n, unlimited)
	perSecond := max(n/took.Seconds(), 50_000) // not less on a machine that has other things to do
	ofProcess := func(_ *localqueue.Engine, q queue.Queue) (queue.Queue, []listener.Interceptor, func()) {
		l, err := limits.NewProcess(&limits.ProcessOptions{Messages: 4 * perSecond, Requests: 4 * perSecond}) // a job is got and deleted
		if err != nil {
			b.Fatal(err)
		}
		return l.Wrap(q), nil, func() {}
	}
	ofAll := func(e *localqueue.Engine, q queue.Queue) (queue.Queue, []listener.Interceptor, func()) {
		l, err := openReady(e, limits.Rate{Jobs: int(60 * perSecond), Window: 30 * time.Second, PerToken: 1000})
		if err != nil {
			b.Fatal(err)
		}
		return l.Wrap(q), nil, func() {}
	}
	together := func(e *localqueue.Engine, q queue.Queue) (queue.Queue, []listener.Interceptor, func()) {
		l, err := openConcurrency(e, limits.Concurrency{Jobs: 128}) // the listener has 64 slots
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := l.Run(ctx); err != nil {
				b.Error(err)
			}
		})
		return l.Wrap(q), []listener.Interceptor{slots.OfFleet(l.Begin, l.End)}, func() { cancel(); running.Wait() }
	}
	kinds := []wrapping{unlimited, ofProcess, ofAll, together}
	best := make([]time.Duration, len(kinds)) // of each: what else the machine does only makes it slower
	for round := 0; b.Loop(); round++ {
		for i := range kinds {
			i = (i + round) % len(kinds)
			if _, used := work(b, n, kinds[i]); best[i] == 0 || used < best[i] {
				best[i] = used
			}
		}
	}
	for i, name := range []string{1: "limited", 2: "rate", 3: "concurrency"} {
		if i > 0 {
			b.ReportMetric(100*(best[i].Seconds()/best[0].Seconds()-1), "%"+name)
			b.ReportMetric(float64((best[i]-best[0]).Nanoseconds())/n, "ns/job-"+name)
		}
	}
	b.ReportMetric(float64(best[0].Nanoseconds())/n, "cpu-ns/job")
	b.ReportMetric(0, "ns/op")
}

// atOnce is a queue of tokens that can be taken at once: a benchmark does not wait for the set-up.
type atOnce struct{ queue.Manager }

func (q atOnce) Update(ctx context.Context, l queue.Lease, text string, _ time.Duration) (queue.Lease, error) {
	return q.Manager.Update(ctx, l, text, 0)
}

// openConcurrency returns a limit whose tokens are there.
func openConcurrency(e *localqueue.Engine, c limits.Concurrency) (*limits.ConcurrencyLimit, error) {
	q := atOnce{e.Queue(queue.Name{Account: "acme", Queue: "tokens"})}
	err := c.Init(context.Background(), q)
	l, failed := c.Open(context.Background(), q)
	return l, errors.Join(err, failed)
}

// openReady returns a limit whose tokens are there.
func openReady(e *localqueue.Engine, r limits.Rate) (*limits.RateLimit, error) {
	q := atOnce{e.Queue(queue.Name{Account: "acme", Queue: "tokens"})}
	err := r.Init(context.Background(), q)
	l, failed := r.Open(context.Background(), q)
	return l, errors.Join(err, failed)
}
