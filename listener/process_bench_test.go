package listener_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/producer"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// BenchmarkInOneProcess sends jobs of 1 KiB from two goroutines and settles them with 64 handlers, all over
// the engine in memory and with a codec that does nothing. At most 4,096 jobs are under way, because a backlog
// that grows measures the page faults of its memory. An iteration is a job.
func BenchmarkInOneProcess(b *testing.B) {
	for _, perMessage := range []int{1, 40} {
		b.Run(fmt.Sprintf("per=%d", perMessage), func(b *testing.B) {
			b.ReportAllocs()
			sendAndSettle(b, b.N, perMessage)
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}

// What a job allocates from Send to its delete is 15.5, and 10.3 in groups; with the race detector, which empties the
// pools, 18.1.
func TestAllocationsInOneProcess(t *testing.T) {
	for perMessage, most := range map[int]float64{1: 18.5, 40: 11} {
		const jobs = 8000
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		sendAndSettle(t, jobs, perMessage)
		runtime.ReadMemStats(&after)
		if n := float64(after.Mallocs-before.Mallocs) / jobs; n > most {
			t.Errorf("%d in a message: %.2f allocations per job, want %v", perMessage, n, most)
		}
	}
}

func sendAndSettle(t testing.TB, jobs, perMessage int) {
	const senders = 2
	engine := must(localqueue.New(nil))
	q := engine.Queue(queue.Name{Account: "bench", Queue: "jobs"})
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var handled atomic.Int64
	underWay := make(chan struct{}, 4096)
	handler := func(context.Context, *listener.Message[[]byte]) error {
		<-underWay
		if handled.Add(1) == int64(jobs) {
			cancel()
		}
		return nil
	}
	concurrency := 64
	if perMessage > 1 {
		concurrency, handler = 8, listener.EachItem(handler, 8)
	}
	l := listener.New(q, handler, &listener.Options[[]byte]{Codec: codec.Bytes(), Concurrency: concurrency, Wakeups: engine, Logger: slog.New(slog.DiscardHandler)})
	p := producer.New(q, &producer.Options[[]byte]{Codec: codec.Bytes()})
	job := []byte(text)
	group := slices.Repeat([][]byte{job}, perMessage)
	var left atomic.Int64
	left.Store(int64(jobs))
	var g errgroup.Group
	for range senders {
		g.Go(func() error {
			for {
				n := min(int(left.Add(-int64(perMessage)))+perMessage, perMessage)
				for range n {
					underWay <- struct{}{}
				}
				var err error
				switch {
				case n <= 0:
					return nil
				case perMessage == 1:
					_, err = p.Send(t.Context(), job, nil)
				default:
					_, err = p.SendGroup(t.Context(), group[:n], nil)
				}
				if err != nil {
					return err
				}
			}
		})
	}
	g.Go(func() error { return l.Run(ctx) })
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if handled.Load() < int64(jobs) {
		t.Fatalf("got %d jobs handled, want %d", handled.Load(), jobs)
	}
}
