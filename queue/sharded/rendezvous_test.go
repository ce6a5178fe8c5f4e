package sharded_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/sharded"
)

// byName returns k shards with names that nobody reads.
func byName(names ...queue.Name) []queue.Queue {
	shards := make([]queue.Queue, len(names))
	for i, n := range names {
		shards[i] = named{name: n}
	}
	return shards
}

// places returns where keys go.
func places(q *sharded.Queue, keys []string) []queue.Name {
	names := make([]queue.Name, len(keys))
	for i, key := range keys {
		names[i] = q.ShardsOf(key)[0].Name()
	}
	return names
}

// drawNames draws names as people give them: alike but for a number or a letter.
func drawNames(t *rapid.T, k int) []queue.Name {
	base := rapid.StringMatching(`[a-z][a-z0-9]{2,10}`).Draw(t, "base")
	from := rapid.IntRange(0, 1000).Draw(t, "from")
	accounts := rapid.IntRange(1, 3).Draw(t, "accounts")
	names := make([]queue.Name, k)
	for i := range names {
		names[i] = queue.Name{Account: fmt.Sprint("acct", i%accounts), Queue: fmt.Sprint(base, "-", from+i)}
	}
	return names
}

// S-05: one more shard moves its part of the keys, 1/(k+1), only to itself and from all others; without it
// they are where they were. The order of the shards does not matter.
func TestOneMoreShardTakesItsPartOfTheKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 4000
		k := rapid.IntRange(1, 24).Draw(t, "k")
		names := drawNames(t, k+1)
		prefix := rapid.StringN(0, 20, 60).Draw(t, "prefix")
		keys := make([]string, n)
		for i := range keys {
			keys[i] = fmt.Sprint(prefix, i)
		}
		o := &sharded.Options{Place: sharded.ByKey}
		q, err := sharded.New(byName(names[:k]...), o)
		if err != nil {
			t.Fatal(err)
		}
		before := places(q, keys)
		added := named{name: names[k]}
		if err := q.Add(added); err != nil {
			t.Fatal(err)
		}
		after, moved := places(q, keys), 0
		from := map[queue.Name]int{}
		for i := range keys {
			if before[i] != after[i] {
				if moved++; after[i] != added.name {
					t.Fatalf("key %q moved from %v to %v, which is not the new shard", keys[i], before[i], after[i])
				}
				from[before[i]]++
			}
		}
		near(t, "keys that moved", moved, n, 1/float64(k+1))
		for _, name := range names[:k] {
			near(t, fmt.Sprint("keys that moved from ", name), from[name], n, 1/float64(k*(k+1)))
		}
		r := rand.New(rand.NewPCG(uint64(k), 0)) //nolint:gosec // no secret
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		other, err := sharded.New(byName(names...), o)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(places(other, keys), after) {
			t.Fatal("another order of the shards has other places")
		}
		if err := q.Remove(t.Context(), added.name); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(places(q, keys), before) {
			t.Fatal("when the shard is removed the keys are not where they were")
		}
	})
}

// near checks that a count is what n draws of probability p give, within six standard deviations.
func near(t interface {
	Helper()
	Fatalf(string, ...any)
}, what string, got, n int, p float64,
) {
	t.Helper()
	mean := float64(n) * p
	if d := math.Abs(float64(got) - mean); d > 6*math.Sqrt(mean*(1-p))+1 {
		t.Fatalf("%s: %d of %d, want about %.0f", what, got, n, mean)
	}
}

// Producers of all versions must agree on the places, or keys lose their shards with an update.
func TestThePlacesOfKeysNeverChange(t *testing.T) {
	q, err := sharded.New(byName(
		queue.Name{Account: "east", Queue: "orders-0"}, queue.Name{Account: "east", Queue: "orders-1"},
		queue.Name{Account: "west", Queue: "orders-2"}, queue.Name{Account: "west", Queue: "orders-3"}), &sharded.Options{Place: sharded.ByKey})
	if err != nil {
		t.Fatal(err)
	}
	var got string
	for _, name := range places(q, []string{"a", "b", "c", "customer-1", "customer-2", "customer-3", "日本", "0", "1", "2", "3", "4"}) {
		got += name.Queue[len("orders-"):]
	}
	if want := "332133332200"; got != want {
		t.Errorf("the keys go to %s, want %s", got, want)
	}
}
