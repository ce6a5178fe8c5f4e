package sharded_test

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/sharded"
)

// over returns a sharded queue over k shards that do nothing.
func over(t testing.TB, k int, o sharded.Options) *sharded.Queue {
	t.Helper()
	shards := make([]queue.Queue, k)
	for i := range shards {
		shards[i] = idle{named{name: queue.Name{Account: "east", Queue: fmt.Sprint("orders-", i)}}}
	}
	q, err := sharded.New(shards, &o)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// every is all ways to place a message.
var every = map[string]sharded.Options{
	"round robin":     {Place: sharded.RoundRobin},
	"random":          {Place: sharded.Random},
	"by key":          {Place: sharded.ByKey},
	"least depth":     {Place: sharded.LeastDepth},
	"tenants":         {PerTenant: 4},
	"tenants and key": {PerTenant: 4, Place: sharded.ByKey, Tenant: func(key string) string { return key[:1] }},
}

// BenchmarkEnqueue measures what placing adds to an Enqueue.
func BenchmarkEnqueue(b *testing.B) {
	for _, k := range []int{1, 8, 64} {
		for name, o := range every {
			b.Run(fmt.Sprintf("%s/%d", name, k), func(b *testing.B) {
				q, options := over(b, k, o), &queue.EnqueueOptions{Key: "customer-4711"}
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if _, err := q.Enqueue(b.Context(), "text", options); err != nil {
							b.Error(err)
						}
					}
				})
			})
		}
	}
}

// The one is a context, by which a paired shard knows that it need not wait while it is busy.
func TestPlacingAllocatesAtMostOnce(t *testing.T) {
	for name, o := range every {
		q, options, ctx := over(t, 8, o), &queue.EnqueueOptions{Key: "customer-4711"}, t.Context()
		if n := testing.AllocsPerRun(1000, func() {
			if _, err := q.Enqueue(ctx, "text", options); err != nil {
				t.Error(err)
			}
		}); n > 1 {
			t.Errorf("%s: %v allocations an Enqueue", name, n)
		}
	}
}
