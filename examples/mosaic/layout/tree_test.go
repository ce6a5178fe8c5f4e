package layout

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// anyFeatures draws features of a few values, so that there are many ties.
func anyFeatures(t *rapid.T, name string) (f features) {
	seed, step := rapid.Uint32().Draw(t, name), rapid.SampledFrom([]uint32{3, 100, 4000}).Draw(t, "step")
	for i := range f {
		seed = seed*1664525 + 1013904223
		f[i] = int16((seed >> 16) % step)
	}
	return f
}

func drawList(t *rapid.T) []features {
	list := make([]features, rapid.IntRange(1, 80).Draw(t, "tiles"))
	for i := range list {
		list[i] = anyFeatures(t, "tile")
	}
	return list
}

func TestNearestAreTheNearest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list, at := drawList(t), anyFeatures(t, "cell")
		want := make([]candidate, len(list))
		for i := range list {
			want[i] = newCandidate(distance(&at, &list[i], math.MaxInt32), int32(i))
		}
		slices.Sort(want)
		k := rapid.IntRange(1, len(list)).Draw(t, "wanted")
		s := nearest{tree: newTree(list)}
		if got := s.find(&at, make([]candidate, 0, k)); !slices.Equal(got, want[:k]) {
			t.Fatalf("the %d nearest of %d: got %v, want %v", k, len(list), got, want[:k])
		}
	})
}

func TestCheapestIsTheCheapest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list, at := drawList(t), anyFeatures(t, "cell")
		p := newChooser(gradient(2, 2, 3), list)
		p.turn = 1
		want, least := int32(-1), int64(math.MaxInt64)
		for i := range list {
			p.prices[i] = rapid.Int64Range(0, 1<<28).Draw(t, "price")
			p.tree.reprice(p.prices, int32(i))
			if i > 0 && rapid.Bool().Draw(t, "blocked") {
				p.seen[i] = sighting{turn: 1, blocked: true}
				continue
			}
			if cost := mismatch(&at, &list[i], math.MaxInt32) + p.prices[i]; cost < least {
				want, least = int32(i), cost
			}
		}
		s := cheapest{chooser: p, at: at, cost: math.MaxInt64, tile: -1}
		s.search(0, 0)
		if s.tile != want || s.cost != least {
			t.Fatalf("cheapest of %d: got tile %d for %d, want %d for %d", len(list), s.tile, s.cost, want, least)
		}
	})
}
