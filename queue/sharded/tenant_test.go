package sharded_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/sharded"
)

// A tenant has its shards, the same whenever they are asked for, and nothing of it goes elsewhere.
func TestATenantStaysInItsShards(t *testing.T) {
	for _, place := range append(spreading, sharded.ByKey) {
		b := setup(t, 6, &sharded.Options{Place: place, PerTenant: 2, Tenant: func(key string) string {
			tenant, _, _ := strings.Cut(key, "/")
			return tenant
		}})
		for tenant := range 20 {
			used := map[int]bool{}
			for i := range 40 {
				key := fmt.Sprintf("tenant-%d/order-%d", tenant, i)
				s := b.send(t, fmt.Sprint(tenant, i), key)
				used[s] = true
				of := b.ShardsOf(key)
				if !slices.ContainsFunc(of, func(q queue.Queue) bool { return q == queue.Queue(b.shards[s]) }) {
					t.Fatalf("%v: %s went to shard %d, and its shards are %v", place, key, s, of)
				}
			}
			if len(used) != 2 && place != sharded.LeastDepth { // which leaves out a shard that others have filled
				t.Errorf("%v: tenant %d uses %d shards, want 2", place, tenant, len(used))
			}
		}
	}
}

// What has no tenant is one tenant: otherwise it would reach the shards of all.
func TestMessagesWithoutATenantAreOneTenant(t *testing.T) {
	b := setup(t, 6, &sharded.Options{PerTenant: 2})
	used := map[int]bool{}
	for i := range 40 {
		used[b.send(t, fmt.Sprint(i), "")] = true
	}
	if len(used) != 2 {
		t.Errorf("they use %d shards", len(used))
	}
}

// One more shard replaces one shard of a part of the tenants, s/(k+1), and no other shard of anybody.
func TestOneMoreShardReplacesOneShardOfSomeTenants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 2000
		k := rapid.IntRange(2, 16).Draw(t, "k")
		s := rapid.IntRange(1, k-1).Draw(t, "s")
		names := drawNames(t, k+1)
		q, err := sharded.New(byName(names[:k]...), &sharded.Options{PerTenant: s})
		if err != nil {
			t.Fatal(err)
		}
		before := make([][]queue.Queue, n)
		for i := range n {
			before[i] = q.ShardsOf(fmt.Sprint("tenant-", i))
		}
		added := named{name: names[k]}
		if err := q.Add(added); err != nil {
			t.Fatal(err)
		}
		changed := 0
		for i := range n {
			var gone, come int
			after := q.ShardsOf(fmt.Sprint("tenant-", i))
			for _, one := range after {
				if !slices.Contains(before[i], one) {
					if come++; one != queue.Queue(added) {
						t.Fatalf("tenant %d got the shard %v, which was there before", i, one.Name())
					}
				}
			}
			for _, one := range before[i] {
				if !slices.Contains(after, one) {
					gone++
				}
			}
			if gone != come || come > 1 {
				t.Fatalf("tenant %d lost %d shards and got %d", i, gone, come)
			}
			changed += come
		}
		near(t, "tenants with the new shard", changed, n, float64(s)/float64(k+1))
	})
}

// choose returns n over k.
func choose(n, k int) float64 {
	c := 1.0
	for i := range k {
		c *= float64(n-i) / float64(i+1)
	}
	if k > n {
		return 0
	}
	return c
}

// shares returns the probability that two tenants share all of their s of k shards, and at least one.
func shares(k, s int) (all, some float64) {
	return 1 / choose(k, s), 1 - choose(k-s, s)/choose(k, s)
}

// The hash gives tenants their shards as if they were drawn.
func TestTenantsShareShardsAsOftenAsDocumented(t *testing.T) {
	const n = 300
	for _, c := range tenantTable {
		names := make([]queue.Name, c.k)
		for i := range names {
			names[i] = queue.Name{Account: "east", Queue: fmt.Sprint("orders-", i)}
		}
		q, err := sharded.New(byName(names...), &sharded.Options{PerTenant: c.s})
		if err != nil {
			t.Fatal(err)
		}
		var of [n][]queue.Queue
		for i := range n {
			of[i] = q.ShardsOf(fmt.Sprint("tenant-", i))
		}
		var same, touching, pairs float64
		for i := range n {
			for j := range i {
				common := 0
				for _, one := range of[i] {
					if slices.Contains(of[j], one) {
						common++
					}
				}
				pairs++
				if common > 0 {
					touching++
				}
				if common == c.s {
					same++
				}
			}
		}
		all, some := shares(c.k, c.s)
		// The pairs are not independent, so the tolerance is a fixed one.
		if d := same/pairs - all; d > 0.01+all/10 || -d > 0.01+all/10 {
			t.Errorf("%d of %d: %.4f share all shards, want %.4f", c.s, c.k, same/pairs, all)
		}
		if d := touching/pairs - some; d > 0.02 || -d > 0.02 {
			t.Errorf("%d of %d: %.4f share a shard, want %.4f", c.s, c.k, touching/pairs, some)
		}
	}
}

// tenantTable is which shards and parts of them docs/sharding.md lists.
var tenantTable = []struct{ k, s int }{
	{4, 1}, {4, 2}, {8, 1}, {8, 2}, {8, 3}, {8, 4}, {16, 1}, {16, 2}, {16, 4}, {32, 2}, {32, 4}, {64, 2}, {64, 4},
}

// TestTheTableOfTenantsIsComputed compares the table in docs/sharding.md with what the formula gives.
func TestTheTableOfTenantsIsComputed(t *testing.T) {
	var want strings.Builder
	for _, c := range tenantTable {
		all, some := shares(c.k, c.s)
		fmt.Fprintf(&want, "| %d | %d | %.0f | %s | %s |\n", c.k, c.s, choose(c.k, c.s), percent(all), percent(some))
	}
	page, err := os.ReadFile("../../docs/sharding.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), want.String()) {
		t.Errorf("docs/sharding.md lacks these lines:\n%s", want.String())
	}
}

func percent(p float64) string {
	if p < 0.001 {
		return fmt.Sprintf("%.4f %%", 100*p)
	}
	return fmt.Sprintf("%.1f %%", 100*p)
}
