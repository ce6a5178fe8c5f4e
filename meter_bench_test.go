package millrace_test

import (
	"testing"

	"github.com/millrace/millrace/meter"
	"github.com/millrace/millrace/queue"
)

// BenchmarkDelete measures what counting adds to a request that costs nothing itself.
func BenchmarkMeterDelete(b *testing.B) {
	bare := queue.Queue(answering{})
	for name, q := range map[string]queue.Queue{"bare": bare, "metered": meter.New().Wrap(bare), "metered twice": meter.New().Wrap(meter.New().Wrap(bare))} {
		b.Run(name, func(b *testing.B) {
			ctx := queue.WithCause(b.Context(), queue.CauseDelete)
			b.ReportAllocs()
			for b.Loop() {
				if err := q.Delete(ctx, queue.Lease{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkParallelDelete is the same from all processors.
func BenchmarkMeterParallelDelete(b *testing.B) {
	bare := queue.Queue(answering{})
	for name, q := range map[string]queue.Queue{"bare": bare, "metered": meter.New().Wrap(bare)} {
		b.Run(name, func(b *testing.B) {
			ctx := queue.WithCause(b.Context(), queue.CauseDelete)
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					_ = q.Delete(ctx, queue.Lease{})
				}
			})
		})
	}
}

// BenchmarkCounts measures a snapshot.
func BenchmarkMeterCounts(b *testing.B) {
	m := meter.New()
	for _, c := range queue.Causes() {
		send(queue.WithCause(b.Context(), c), m.Wrap(answering{}), meter.Update)
	}
	b.ReportAllocs()
	for b.Loop() {
		if len(m.Counts()) != len(queue.Causes()) {
			b.Fatal("counts are missing")
		}
	}
}
