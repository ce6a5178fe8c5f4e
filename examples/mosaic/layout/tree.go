package layout

import (
	"cmp"
	"math"
	"slices"
)

const (
	// axes is how many features the tree divides along: the mean and the gradients of lightness.
	axes = 5
	// bucket is how many tiles a leaf of the tree has at most.
	bucket = 8
)

// tree finds the tiles nearest to a cell (J. L. Bentley, "Multidimensional binary search trees used for associative searching", 1975).
type tree struct {
	nodes  []node
	points []features // of the tiles, those of one leaf together
	tile   []int32    // the tile of every point
	leafOf []int32    // the leaf of every tile
}

type node struct {
	axis        int8  // -1 for a leaf
	at          int16 // what is less along the axis is on the left
	left, right int32 // nodes, or the points of a leaf
	parent      int32
	price       int64 // the lowest price of a tile below
}

func newTree(list []features) *tree {
	t := &tree{points: make([]features, 0, len(list)), tile: make([]int32, len(list)), leafOf: make([]int32, len(list))}
	for i := range t.tile {
		t.tile[i] = int32(i)
	}
	t.build(list, 0, len(list), -1)
	return t
}

// build makes the node of the tiles first to end-1 of the order so far.
func (t *tree) build(list []features, first, end int, parent int32) int32 {
	self := int32(len(t.nodes))
	t.nodes = append(t.nodes, node{axis: -1, left: int32(first), right: int32(end), parent: parent})
	part := t.tile[first:end]
	if len(part) <= bucket {
		for _, tile := range part {
			t.points = append(t.points, list[tile])
			t.leafOf[tile] = self
		}
		return self
	}
	axis := widest(list, part)
	slices.SortFunc(part, func(a, b int32) int {
		if c := cmp.Compare(list[a][axis], list[b][axis]); c != 0 {
			return c
		}
		return cmp.Compare(a, b)
	})
	mid := len(part) / 2
	at := list[part[mid]][axis]
	left := t.build(list, first, first+mid, self)
	right := t.build(list, first+mid, end, self)
	n := &t.nodes[self]
	n.axis, n.at, n.left, n.right = int8(axis), at, left, right
	return self
}

// widest is the axis along which the tiles are spread most.
func widest(list []features, part []int32) int {
	best, spread := 0, -1
	for axis := range axes {
		lo, hi := math.MaxInt, math.MinInt
		for _, tile := range part {
			v := int(list[tile][axis])
			lo, hi = min(lo, v), max(hi, v)
		}
		if hi-lo > spread {
			best, spread = axis, hi-lo
		}
	}
	return best
}

// candidate is a tile and its distance in one number, which orders by distance and then by tile.
type candidate uint64

func newCandidate(distance, tile int32) candidate {
	return candidate(distance)<<32 | candidate(tile)
}

func (c candidate) distance() int32 { return int32(c >> 32) }
func (c candidate) tile() int32     { return int32(c & math.MaxUint32) }

// nearest collects the tiles nearest to a cell.
type nearest struct {
	tree *tree
	at   *features
	away [axes]int32 // squared distances from the node being looked at, along each axis
	best []candidate // nearest first; its capacity is how many are wanted
}

// find fills best with the tiles nearest to the features.
func (s *nearest) find(at *features, best []candidate) []candidate {
	s.at, s.best, s.away = at, best[:0], [axes]int32{}
	s.search(0, 0)
	return s.best
}

func (s *nearest) limit() int32 {
	if len(s.best) < cap(s.best) {
		return math.MaxInt32
	}
	return s.best[len(s.best)-1].distance()
}

// search looks through a node, all of whose tiles are at least the squared distance d away.
func (s *nearest) search(at int32, d int32) {
	n := &s.tree.nodes[at]
	if n.axis < 0 {
		s.leaf(n)
		return
	}
	side := int32(s.at[n.axis]) - int32(n.at)
	near, far := n.left, n.right
	if side >= 0 {
		near, far = far, near
	}
	s.search(near, d)
	old := s.away[n.axis]
	if d += side*side - old; d <= s.limit() {
		s.away[n.axis] = side * side
		s.search(far, d)
		s.away[n.axis] = old
	}
}

func (s *nearest) leaf(n *node) {
	for i := n.left; i < n.right; i++ {
		limit := s.limit()
		d := distance(s.at, &s.tree.points[i], limit)
		if d > limit {
			continue
		}
		c := newCandidate(d, s.tree.tile[i])
		if len(s.best) < cap(s.best) {
			s.best = append(s.best, c)
		} else if c >= s.best[len(s.best)-1] {
			continue
		}
		k := len(s.best) - 1
		for ; k > 0 && s.best[k-1] > c; k-- {
			s.best[k] = s.best[k-1]
		}
		s.best[k] = c
	}
}
