package tiles

import (
	"cmp"
	"math"
	"slices"
)

// kdTree finds the nearest of a set of colours (J. L. Bentley, "Multidimensional
// binary search trees used for associative searching", 1975). It is an array:
// the middle element of a range divides the elements before it from those after
// it along one axis.
type kdTree []kdNode

type kdNode struct {
	at   [3]float64 // L, A, B
	tile int32      // index in the library
	axis int8
}

// bucket is the number of elements up to which looking at all of them is
// quicker than dividing them.
const bucket = 6

// newKDTree builds the tree of the colours labs[i] of the tiles i.
func newKDTree(labs []Lab) kdTree {
	t := make(kdTree, len(labs))
	for i, lab := range labs {
		t[i] = kdNode{at: [3]float64{lab.L, lab.A, lab.B}, tile: int32(i)}
	}
	t.build()
	return t
}

func (t kdTree) build() {
	if len(t) <= bucket {
		return
	}
	axis := t.widest()
	slices.SortFunc(t, func(a, b kdNode) int {
		if c := cmp.Compare(a.at[axis], b.at[axis]); c != 0 {
			return c
		}
		return cmp.Compare(a.tile, b.tile)
	})
	mid := len(t) / 2
	t[mid].axis = int8(axis)
	t[:mid].build()
	t[mid+1:].build()
}

// widest is the axis along which the colours are spread most: dividing that one
// keeps the boxes near to cubes, which a search can rule out sooner.
func (t kdTree) widest() int {
	best, spread := 0, -1.0
	for axis := range 3 {
		lo, hi := math.Inf(1), math.Inf(-1)
		for i := range t {
			v := t[i].at[axis]
			lo, hi = min(lo, v), max(hi, v)
		}
		if hi-lo > spread {
			best, spread = axis, hi-lo
		}
	}
	return best
}

// nearest gives the tile nearest to a colour, the first of them if several are
// equally near. The tree must not be empty.
func (t kdTree) nearest(lab Lab) int {
	s := kdSearch{at: [3]float64{lab.L, lab.A, lab.B}, squared: math.Inf(1)}
	s.search(t, [3]float64{})
	return int(s.tile)
}

// kdSearch is the best tile found so far for the colour at.
type kdSearch struct {
	at      [3]float64
	squared float64
	tile    int32
}

// search looks through t, all of whose colours are at least away from the
// colour along each axis (S. Arya and D. M. Mount, "Algorithms for fast vector
// quantization", 1993).
func (s *kdSearch) search(t kdTree, away [3]float64) {
	if len(t) <= bucket {
		for i := range t {
			s.look(&t[i])
		}
		return
	}
	mid := len(t) / 2
	n := &t[mid]
	near, far := t[:mid], t[mid+1:]
	side := s.at[n.axis] - n.at[n.axis]
	if side > 0 {
		near, far = far, near
	}
	s.search(near, away)
	s.look(n)
	// The other side can only matter if it comes as near as the best so far; at
	// exactly the same distance it may hold a tie with an earlier name. Rounding
	// cannot spoil this: every step of squaredLength grows with each of its
	// operands, rounded or not.
	away[n.axis] = side
	if squaredLength(away) <= s.squared {
		s.search(far, away)
	}
}

func (s *kdSearch) look(n *kdNode) {
	d := squaredLength([3]float64{n.at[0] - s.at[0], n.at[1] - s.at[1], n.at[2] - s.at[2]})
	if d < s.squared || d == s.squared && n.tile < s.tile {
		s.squared, s.tile = d, n.tile
	}
}

// squaredLength orders distances as DeltaE does and is cheaper. The conversions
// forbid the compiler to fuse multiplications with additions, so that every
// machine picks the same tile.
func squaredLength(d [3]float64) float64 {
	return float64(d[0]*d[0]) + float64(d[1]*d[1]) + float64(d[2]*d[2])
}
