package tokens_test

import (
	"context"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/limited"
	"github.com/millrace/millrace/queue/localqueue"
	"github.com/millrace/millrace/queue/tokens"
)

// work lets a listener handle n jobs of a queue in memory and returns how long that takes.
func work(b *testing.B, n int, wrap func(*localqueue.Engine, queue.Queue) queue.Queue) time.Duration {
	engine := localqueue.New(nil)
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
	l := listener.New(wrap(engine, jobs), func(context.Context, *listener.Message[int]) error {
		if handled.Add(1) == int64(n) {
			stop()
		}
		return nil
	}, &listener.Options[int]{Logger: slog.New(slog.DiscardHandler)})
	begin := time.Now()
	if err := l.Run(ctx); err != nil {
		b.Fatal(err)
	}
	return time.Since(begin)
}

func unlimited(_ *localqueue.Engine, q queue.Queue) queue.Queue { return q }

// BenchmarkCost compares a listener without a limit with one under a limit of twice what it does, in turns, so that
// what else the machine does meets both. It prints the cost of each limit in percent of the time.
func BenchmarkCost(b *testing.B) {
	const n = 20_000
	perSecond := n / work(b, n, unlimited).Seconds()
	ofProcess := func(_ *localqueue.Engine, q queue.Queue) queue.Queue {
		l, err := limited.New(&limited.Options{Messages: 4 * perSecond, Requests: 4 * perSecond}) // a job is got and deleted
		if err != nil {
			b.Fatal(err)
		}
		return l.Wrap(q)
	}
	ofAll := func(e *localqueue.Engine, q queue.Queue) queue.Queue {
		l, err := openReady(e, tokens.Rate{Jobs: int(60 * perSecond), Window: 30 * time.Second, PerToken: 1000})
		if err != nil {
			b.Fatal(err)
		}
		return l.Wrap(q)
	}
	var plain, first, second time.Duration
	for b.Loop() {
		plain += work(b, n, unlimited)
		first += work(b, n, ofProcess)
		second += work(b, n, ofAll)
	}
	b.ReportMetric(100*(first.Seconds()/plain.Seconds()-1), "%limited")
	b.ReportMetric(100*(second.Seconds()/plain.Seconds()-1), "%tokens")
	b.ReportMetric(float64(b.N)*n/plain.Seconds(), "jobs/s")
	b.ReportMetric(0, "ns/op")
}
