package tiles

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

func exhaustive(labs []Lab, lab Lab) int {
	best, at := math.Inf(1), -1
	for i, c := range labs {
		if d := squaredLength([3]float64{c.L - lab.L, c.A - lab.A, c.B - lab.B}); d < best {
			best, at = d, i
		}
	}
	return at
}

func TestNearestIsTheNearest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// A coarse lattice gives exact ties and equal colours in plenty, a fine
		// one anything else.
		lattice := rapid.SampledFrom([]float64{20, 5, 0.001}).Draw(t, "lattice")
		lab := rapid.Custom(func(t *rapid.T) Lab {
			axis := func(name string, lo, hi float64) float64 {
				return math.Round(rapid.Float64Range(lo, hi).Draw(t, name)/lattice) * lattice
			}
			return Lab{axis("L", 0, 100), axis("a", -100, 100), axis("b", -100, 100)}
		})
		labs := rapid.SliceOfN(lab, 1, 200).Draw(t, "tiles")
		tree := newKDTree(labs)
		for range 20 {
			q := lab.Draw(t, "colour")
			if rapid.Bool().Draw(t, "between") {
				q.L, q.A = q.L+lattice/2, q.A+lattice/2
			}
			if got, want := tree.nearest(q), exhaustive(labs, q); got != want {
				t.Fatalf("nearest to %v is tile %d (ΔE %v), want %d (ΔE %v)", q, got, DeltaE(q, labs[got]), want, DeltaE(q, labs[want]))
			}
		}
	})
}

func TestNearestInGeneratedLibrary(t *testing.T) {
	l := generated(t, 16)
	labs := make([]Lab, l.Len())
	for i := range labs {
		labs[i] = LabOf(l.Tile(i).Mean)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		q := Lab{rng.Float64() * 100, rng.Float64()*200 - 100, rng.Float64()*200 - 100}
		if got, want := l.Nearest(q), exhaustive(labs, q); got != want {
			t.Fatalf("nearest to %v: got %d, want %d", q, got, want)
		}
	}
}

// colours are those of photographs, more or less.
func colours(n int) []Lab {
	rng := rand.New(rand.NewPCG(3, 4))
	list := make([]Lab, n)
	for i := range list {
		list[i] = labOf8(uint8(rng.Uint32()), uint8(rng.Uint32()), uint8(rng.Uint32()))
	}
	return list
}

func BenchmarkNearest(b *testing.B) {
	l, list := generated(b, 16), colours(1<<12)
	i := 0
	for b.Loop() {
		l.Nearest(list[i%len(list)])
		i++
	}
}

func BenchmarkNearestExhaustive(b *testing.B) {
	l, list := generated(b, 16), colours(1<<12)
	labs := make([]Lab, l.Len())
	for i := range labs {
		labs[i] = LabOf(l.Tile(i).Mean)
	}
	i := 0
	for b.Loop() {
		exhaustive(labs, list[i%len(list)])
		i++
	}
}
