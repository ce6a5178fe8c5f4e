package localqueue

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

var kibibyte = strings.Repeat("x", 1024)

func benchmarkQueue(b *testing.B, name string) *handle {
	q := must(New(nil)).queue(queue.Name{Account: "bench", Queue: name})
	if err := q.Create(context.Background(), nil); err != nil {
		b.Fatal(err)
	}
	return q
}

// cycle enqueues 32 messages of 1 KiB, dequeues them at once and deletes each.
func cycle(b *testing.B, q *handle) {
	ctx := context.Background()
	for range queue.MaxBatch {
		if _, err := q.Enqueue(ctx, kibibyte, nil); err != nil {
			b.Fatal(err)
		}
	}
	batch, err := q.Dequeue(ctx, queue.MaxBatch, time.Minute)
	if err != nil {
		b.Fatal(err)
	}
	for _, m := range batch {
		if err := q.Delete(ctx, m.Lease); err != nil {
			b.Fatal(err)
		}
	}
}

func reportRate(b *testing.B) {
	b.ReportMetric(float64(b.N)*queue.MaxBatch/b.Elapsed().Seconds(), "messages/s")
}

// BenchmarkCycle measures whole lives of messages, with a queue for each goroutine and with
// one shared queue. One operation is 32 messages.
func BenchmarkCycle(b *testing.B) {
	b.Run("queues=many", func(b *testing.B) {
		engine := must(New(nil))
		var made atomic.Int64
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			q := engine.queue(queue.Name{Account: "bench", Queue: fmt.Sprintf("queue-%d", made.Add(1))})
			if err := q.Create(context.Background(), nil); err != nil {
				b.Error(err)
				return
			}
			for pb.Next() {
				cycle(b, q)
			}
		})
		reportRate(b)
	})
	b.Run("queues=one", func(b *testing.B) {
		q := benchmarkQueue(b, "shared")
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				cycle(b, q)
			}
		})
		reportRate(b)
	})
}

// BenchmarkDepth measures the cycle above a standing backlog. One operation is 32 messages.
func BenchmarkDepth(b *testing.B) {
	for _, depth := range []int{1, 1_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			q := benchmarkQueue(b, "deep")
			for range depth {
				if _, err := q.Enqueue(context.Background(), "backlog", nil); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				cycle(b, q)
			}
			reportRate(b)
		})
	}
}

// BenchmarkPeek measures peeking at the first 32 messages of a deep queue.
func BenchmarkPeek(b *testing.B) {
	q := benchmarkQueue(b, "deep")
	for range 100_000 {
		if _, err := q.Enqueue(context.Background(), "backlog", nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := q.Peek(context.Background(), queue.MaxBatch); err != nil {
			b.Fatal(err)
		}
	}
}
