package millrace_test

import (
	"testing"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/metered"
)

// BenchmarkDelete measures what counting adds to a request that costs nothing itself.
func BenchmarkMeterDelete(b *testing.B) {
	bare := queue.Queue(answering{})
	for name, q := range map[string]queue.Queue{"bare": bare, "metered": new(metered.Meter).Wrap(bare), "metered twice": new(metered.Meter).Wrap(new(metered.Meter).Wrap(bare))} {
		b.Run(name, func(b *testing.B) {
			ctx := metered.WithCause(b.Context(), metered.CauseDelete)
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
	for name, q := range map[string]queue.Queue{"bare": bare, "metered": new(metered.Meter).Wrap(bare)} {
		b.Run(name, func(b *testing.B) {
			ctx := metered.WithCause(b.Context(), metered.CauseDelete)
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
	m := new(metered.Meter)
	for _, c := range metered.Causes() {
		send(metered.WithCause(b.Context(), c), m.Wrap(answering{}), metered.Update)
	}
	b.ReportAllocs()
	for b.Loop() {
		if len(m.Counts()) != len(metered.Causes()) {
			b.Fatal("counts are missing")
		}
	}
}
