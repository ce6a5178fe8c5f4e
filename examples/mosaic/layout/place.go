package layout

import "math"

const (
	// balance is how much the colour around a cell counts beside that of the cell, in sixteenths.
	balance = 24
	// patience is how many spacings worse than the last of its best matches a tile may be before
	// the whole library is searched.
	patience = 2
	// tooMany is added to the price of a tile for each use beyond its quota: more than any distance.
	tooMany = 1 << 34
)

// weights are those of the error of a cell for the cells around it, row by row.
var weights = [9]int32{1, 2, 1, 2, 0, 2, 1, 2, 1}

const allWeights = 12

// around calls do with the cells around a cell and their weights.
func (p *chooser) around(i int, do func(j int, weight int32)) {
	x, y := i%p.cells.Cols, i/p.cells.Cols
	for k, w := range weights {
		u, v := x+k%3-1, y+k/3-1
		if w > 0 && u >= 0 && v >= 0 && u < p.cells.Cols && v < p.cells.Rows {
			do(v*p.cells.Cols+u, w)
		}
	}
}

// put gives a cell a tile.
func (p *chooser) put(i int, tile int32) {
	p.tiles[i] = tile
	p.spread(i, 1)
	p.count(tile, 1)
}

// take takes the tile away from a cell.
func (p *chooser) take(i int) {
	tile := p.tiles[i]
	p.spread(i, -1)
	p.tiles[i] = -1
	p.count(tile, -1)
}

// spread adds the error of a cell to what the cells around it have to make up for, or takes it away.
func (p *chooser) spread(i int, sign int32) {
	f := &p.list[p.tiles[i]]
	var e [means]int32
	for c := range means {
		e[c] = int32(f[c]) - int32(p.mean[i][c])
	}
	p.around(i, func(j int, w int32) {
		for c := range means {
			p.carry[j][c] += int16(sign * (e[c] * w / allWeights))
		}
	})
}

// count changes the uses of a tile, and so its price.
func (p *chooser) count(tile int32, change int32) {
	p.uses[tile] += change
	uses := int64(p.uses[tile])
	price := p.price * uses
	if len(p.list) < len(p.tiles) {
		price = price * int64(len(p.list)) / int64(len(p.tiles))
	}
	if over := uses - int64(p.quota) + 1; p.quota > 0 && over > 0 {
		price += over * tooMany
	}
	p.prices[tile] = price
	p.tree.reprice(p.prices, tile)
}

// look notes which tiles are around a cell.
func (p *chooser) look(i int) {
	p.turn++
	x, y := i%p.cells.Cols, i/p.cells.Cols
	for k := range p.zone {
		z := &p.zone[k]
		u, v := x+z.x, y+z.y
		if u < 0 || v < 0 || u >= p.cells.Cols || v >= p.cells.Rows {
			continue
		}
		t := p.tiles[v*p.cells.Cols+u]
		if t < 0 {
			continue
		}
		s := &p.seen[t]
		if s.turn != p.turn {
			*s = sighting{turn: p.turn}
		}
		s.blocked = s.blocked || z.blocked
		s.cost += z.cost
	}
}

// blocked says whether a tile is too near, as of the last look.
func (p *chooser) blocked(tile int32) bool {
	s := &p.seen[tile]
	return s.turn == p.turn && s.blocked
}

// added is what a tile costs beside its mismatch, as of the last look.
func (p *chooser) added(tile int32) int64 {
	if s := &p.seen[tile]; s.turn == p.turn {
		return p.prices[tile] + s.cost
	}
	return p.prices[tile]
}

// wanted is the colour that makes up for the errors around a cell. With a tile of the error e, and the errors c around it, e² +
// balance·(e+c)² is least for it; and but for a constant that is (1+balance) times the squared distance from it.
func (p *chooser) wanted(i int) (m [means]int16) {
	for k := range m {
		m[k] = p.mean[i][k] - int16(int32(p.carry[i][k])*balance/(16+balance))
	}
	return m
}

// mismatch is how far a tile is from features whose mean is the wanted one.
func mismatch(a, b *features, limit int32) int64 {
	return int64(distance(a, b, limit)) + balanced(meanDistance(a[:means], b))
}

func meanDistance(a []int16, b *features) int32 {
	return square(a[0], b[0]) + square(a[1], b[1]) + square(a[2], b[2])
}

func balanced(d int32) int64 { return int64(d) * balance >> 4 }

// choose returns the tile of the lowest cost for a cell that has none.
func (p *chooser) choose(i int) int32 {
	p.look(i)
	m := p.wanted(i)
	s := cheapest{chooser: p, cost: math.MaxInt64, tile: -1}
	list := p.matchesOf(i)
	for _, c := range list {
		t := c.tile()
		if p.blocked(t) {
			continue
		}
		f := &p.list[t]
		d := meanDistance(m[:], f)
		s.offer(int64(c.distance()-meanDistance(p.mean[i][:], f)+d)+balanced(d)+p.added(t), t)
	}
	if s.tile < 0 || s.cost > int64(list[len(list)-1].distance())+patience*p.spacing+p.tree.nodes[0].price {
		s.at = p.features(i)
		copy(s.at[:], m[:])
		s.search(0, 0)
	}
	return s.tile
}

// reprice updates the lowest prices of the nodes above a tile.
func (t *tree) reprice(prices []int64, tile int32) {
	n := &t.nodes[t.leafOf[tile]]
	lowest := int64(math.MaxInt64)
	for _, other := range t.tile[n.left:n.right] {
		lowest = min(lowest, prices[other])
	}
	for n.price != lowest {
		n.price = lowest
		if n.parent < 0 {
			return
		}
		n = &t.nodes[n.parent]
		lowest = min(t.nodes[n.left].price, t.nodes[n.right].price)
	}
}

// cheapest searches the whole library for the tile of the lowest cost.
type cheapest struct {
	*chooser
	at   features // those of the cell, with the wanted mean
	away [axes]int32
	cost int64
	tile int32
}

// offer takes a tile if it costs less than the best so far.
func (s *cheapest) offer(cost int64, tile int32) {
	if cost < s.cost || cost == s.cost && tile < s.tile {
		s.cost, s.tile = cost, tile
	}
}

// search looks through a node, all of whose tiles are at least the squared distance d away.
func (s *cheapest) search(at int32, d int64) {
	n := &s.tree.nodes[at]
	if d+n.price > s.cost {
		return
	}
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
	s.away[n.axis] = side * side
	s.search(far, d+int64(side*side-old))
	s.away[n.axis] = old
}

func (s *cheapest) leaf(n *node) {
	for i := n.left; i < n.right; i++ {
		tile := s.tree.tile[i]
		limit := s.cost - s.prices[tile]
		if limit < 0 || s.blocked(tile) {
			continue
		}
		if d := mismatch(&s.at, &s.tree.points[i], int32(min(limit, math.MaxInt32))); d <= limit {
			s.offer(d+s.added(tile), tile)
		}
	}
}
