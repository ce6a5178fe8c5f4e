package sharded_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/sharded"
)

// S-01, S-02, S-05: messages are spread over queues, also of several accounts, and the depth is their sum.
func TestMessagesAreSpreadOverTheShards(t *testing.T) {
	for place, spread := range map[sharded.Strategy]int64{sharded.RoundRobin: 1, sharded.Random: 150, sharded.LeastDepth: 1, sharded.ByKey: 150} {
		b := setup(t, 4, &sharded.Options{Place: place})
		for i := range 2001 {
			b.send(t, fmt.Sprint(i), fmt.Sprint("customer-", i))
		}
		counts := b.counts(t)
		if d := slices.Max(counts) - slices.Min(counts); d > spread {
			t.Errorf("%v: %v differ by %d, want at most %d", place, counts, d, spread)
		}
		if p, err := b.Properties(t.Context()); err != nil || p.Depth != 2001 {
			t.Errorf("%v: the depth is %+v, %v; want 2001", place, p, err)
		}
	}
}

// Producers that send one message and end must not all choose the same shard.
func TestRoundRobinBeginsAnywhere(t *testing.T) {
	seen := map[int]bool{}
	for seed := range uint64(100) {
		b := setup(t, 4, &sharded.Options{Seed: seed + 1})
		seen[b.send(t, "first", "")] = true
	}
	if len(seen) != 4 {
		t.Errorf("100 producers began with %d of 4 shards", len(seen))
	}
}

// Tenants that take turns must not each get one of its shards only.
func TestRoundRobinIsEvenForEachTenant(t *testing.T) {
	b := setup(t, 2, &sharded.Options{PerTenant: 2})
	counts := map[string][]int{"a": make([]int, 2), "b": make([]int, 2), "c": make([]int, 2)}
	for i := range 900 {
		tenant := string("abc"[i%3])
		counts[tenant][b.send(t, fmt.Sprint(i), tenant)]++
	}
	for tenant, got := range counts {
		if got[0] != got[1] {
			t.Errorf("tenant %s has %v messages in its shards", tenant, got)
		}
	}
}

func TestTheSeedMakesChoicesRepeatable(t *testing.T) {
	for _, place := range []sharded.Strategy{sharded.RoundRobin, sharded.Random, sharded.LeastDepth} {
		var first []int
		for range 3 {
			b := setup(t, 5, &sharded.Options{Place: place, Seed: 7})
			var got []int
			for i := range 50 {
				got = append(got, b.send(t, fmt.Sprint(i), ""))
			}
			if first == nil {
				first = got
			}
			if !slices.Equal(got, first) {
				t.Errorf("%v: %v and then %v", place, first, got)
			}
		}
	}
}

// S-05: what has one key is in one shard; what has none is spread.
func TestAKeyHasOneShard(t *testing.T) {
	b := setup(t, 5, &sharded.Options{Place: sharded.ByKey})
	for k := range 20 {
		key := fmt.Sprint("customer-", k)
		want := b.ShardsOf(key)
		if len(want) != 1 {
			t.Fatalf("%s has %d shards", key, len(want))
		}
		for i := range 10 {
			if got := b.shards[b.send(t, fmt.Sprint(k, i), key)].Name(); got != want[0].Name() {
				t.Errorf("%s went to %v and belongs to %v", key, got, want[0].Name())
			}
		}
	}
	counts := make([]int, 5)
	for i := range 50 {
		counts[b.send(t, fmt.Sprint("none", i), "")]++
	}
	if slices.Max(counts)-slices.Min(counts) > 1 {
		t.Errorf("messages without a key are in %v", counts)
	}
}

func TestBadOptionsAreRefused(t *testing.T) {
	one := named{name: queue.Name{Account: "east", Queue: "orders-0"}}
	for name, c := range map[string]struct {
		shards []queue.Queue
		o      *sharded.Options
	}{
		"no shards":            {nil, nil},
		"a nil shard":          {[]queue.Queue{nil}, nil},
		"two of one name":      {[]queue.Queue{one, one}, nil},
		"an unknown strategy":  {[]queue.Queue{one}, &sharded.Options{Place: sharded.LeastDepth + 1}},
		"negative tenants":     {[]queue.Queue{one}, &sharded.Options{PerTenant: -1}},
		"tenants of no effect": {[]queue.Queue{one}, &sharded.Options{Tenant: func(string) string { return "" }}},
		"a number of no unit":  {[]queue.Queue{one}, &sharded.Options{DepthEvery: 10}},
		"a negative interval":  {[]queue.Queue{one}, &sharded.Options{DepthEvery: -1}},
	} {
		if q, err := sharded.New(c.shards, c.o); err == nil || q != nil {
			t.Errorf("%s: got %v, %v; want an error", name, q, err)
		}
	}
	var zero sharded.Queue
	if _, err := zero.Enqueue(t.Context(), "text", nil); err == nil {
		t.Error("the zero queue took a message")
	}
	if err := zero.Add(one); err == nil {
		t.Error("the zero queue took a shard")
	}
}

func TestTheNameIsWhatTheShardsHaveInCommon(t *testing.T) {
	for want, names := range map[queue.Name][]queue.Name{
		{Account: "east", Queue: "orders"}:   {{Account: "east", Queue: "orders-0"}, {Account: "east", Queue: "orders-1"}},
		{Queue: "orders"}:                    {{Account: "east", Queue: "orders"}, {Account: "west", Queue: "orders"}},
		{Account: "east", Queue: "orders-7"}: {{Account: "east", Queue: "orders-7"}, {Account: "west", Queue: "jobs"}},
		{Account: "east", Queue: "alone"}:    {{Account: "east", Queue: "alone"}},
	} {
		var shards []queue.Queue
		for _, n := range names {
			shards = append(shards, named{name: n})
		}
		q, err := sharded.New(shards, nil)
		if err != nil {
			t.Fatal(err)
		}
		if q.Name() != want {
			t.Errorf("%v are called %v, want %v", names, q.Name(), want)
		}
	}
}
