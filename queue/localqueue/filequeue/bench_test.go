package filequeue

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

var text = strings.Repeat("x", 1024)

// callers is the number of concurrent callers: they share commits.
const callers = 64

// each calls one n times from concurrent callers.
func each(b testing.TB, n int, one func(context.Context) error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := one(b.Context()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

func enqueue(q queue.Queue) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := q.Enqueue(ctx, text, nil)
		return err
	}
}

// cycle sends one message through the queue.
func cycle(q queue.Queue) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := q.Enqueue(ctx, text, nil); err != nil {
			return err
		}
		batch, err := q.Dequeue(ctx, 1, time.Minute)
		if err != nil || len(batch) == 0 {
			return err
		}
		return q.Delete(ctx, batch[0].Lease)
	}
}

// BenchmarkCycle measures one message through Enqueue, Dequeue(1) and Delete, each durable,
// with 64 callers.
func BenchmarkCycle(b *testing.B) {
	q := made(b, opened(b, b.TempDir()), "cycle")
	b.ResetTimer()
	each(b, b.N, cycle(q))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
}

// many is how many messages a deep queue has. With -short there are fewer, which shows that the benchmarks run.
func many() int {
	if testing.Short() {
		return 50_000
	}
	return 1_000_000
}

// BenchmarkDepth measures the same above a standing backlog, and after draining it down to
// a shallow one: the median of five interleaved runs. "memory" is the engine without a
// store.
func BenchmarkDepth(b *testing.B) {
	for kind, cycles := range map[string]int{"memory": 400_000, "file": 20_000} { // about a second each
		b.Run(kind, func(b *testing.B) {
			little, much := 1_000, many()
			if testing.Short() {
				cycles /= 20
			}
			shallow, deep := deepQueue(b, kind, little), deepQueue(b, kind, much)
			interleaved(b, cycles, shallow, deep, "waiting")
			each(b, (much-little)/queue.MaxBatch, func(ctx context.Context) error {
				batch, err := deep.Dequeue(ctx, queue.MaxBatch, time.Hour)
				for _, m := range batch {
					if err := deep.Delete(ctx, m.Lease); err != nil {
						return err
					}
				}
				return err
			})
			interleaved(b, cycles, shallow, deep, "drained")
		})
	}
}

func deepQueue(b *testing.B, kind string, depth int) queue.Queue {
	e := must(localqueue.New(nil))
	if kind == "file" {
		e = opened(b, b.TempDir())
	}
	q := made(b, e, "deep")
	each(b, depth, enqueue(q))
	return q
}

// interleaved reports the medians of both and their ratio.
func interleaved(b *testing.B, cycles int, shallow, deep queue.Queue, what string) {
	b.Helper()
	const runs = 5
	var rates [2][]float64
	for range runs {
		for i, q := range []queue.Queue{shallow, deep} {
			begin := time.Now()
			each(b, cycles, cycle(q))
			rates[i] = append(rates[i], float64(cycles)/time.Since(begin).Seconds())
		}
	}
	slices.Sort(rates[0])
	slices.Sort(rates[1])
	b.ReportMetric(rates[0][runs/2], what+"-shallow-cycles/s")
	b.ReportMetric(rates[1][runs/2], what+"-deep-cycles/s")
	b.ReportMetric(rates[1][runs/2]/rates[0][runs/2], what+"-ratio")
}

// BenchmarkReopen opens a directory with a million messages of 1 KiB and reports the
// anonymous memory that takes.
func BenchmarkReopen(b *testing.B) {
	dir := b.TempDir()
	e := opened(b, dir)
	each(b, many(), enqueue(made(b, e, "deep")))
	full := anonymous(b)
	closed(b, e)
	b.ResetTimer()
	for range b.N {
		debug.FreeOSMemory()
		e := opened(b, dir)
		b.ReportMetric(anonymous(b), "reopened-RssAnon-MiB")
		closed(b, e)
	}
	b.ReportMetric(full, "filled-RssAnon-MiB")
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/open")
}

// anonymous returns RssAnon of this process in MiB; 0 where it is not available.
func anonymous(b *testing.B) float64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		var kib float64
		if n, _ := fmt.Sscanf(line, "RssAnon: %f kB", &kib); n == 1 {
			return kib / 1024
		}
	}
	return 0
}
