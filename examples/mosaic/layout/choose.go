package layout

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// Choose chooses a tile for each cell. It fails if an option is out of bounds, or with the cause of ctx. Equal cells,
// libraries and options give equal layouts, on every machine.
func Choose(ctx context.Context, c *Cells, library *tiles.Library, o Options) (*Layout, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	list, err := tileFeatures(library, c.Sub)
	if err != nil {
		return nil, err
	}
	p := newChooser(c, list, o.Reuse)
	// The order of the cells is random, so that the choice has no direction that could be seen.
	random := source64{rand.NewPCG(1, 2)}
	for k, i := range random.order(len(p.tiles)) {
		if k%1024 == 0 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		p.put(int(i), p.best(int(i)))
	}
	if o.Reuse == Once {
		if err := p.exchange(ctx, random); err != nil {
			return nil, err
		}
	}
	return &Layout{Library: library.ID(), Tint: o.Tint, Cells: c, Tiles: p.tiles}, nil
}

// The weights of the mean colour of a tile, in sixteenths, for lightness and the two colour axes.
// own is for its difference from the cell: OKLab understates hue and chroma by half beside
// lightness. balance is for how it makes up for the errors of the cells around. Errors of lightness
// mix in the eye, but an error of hue is seen in its own cell. If hue had the weight of lightness,
// nearly white cells would alternate between blue and orange.
var (
	own     = [means]int64{16, 64, 64}
	balance = [means]int64{24, 8, 8}
)

type chooser struct {
	cells   *Cells
	list    []features // of the tiles
	byLight []int32    // the tiles, ordered by lightness

	tiles []int32        // of the cells; -1 means not chosen yet
	mean  [][means]int32 // the wanted looks of the cells
	carry [][means]int32 // the errors around each cell, weighted
	uses  []int64        // of each tile

	price   int64 // of each use of a tile
	spacing int64 // how much worse the eighth match of a cell is than the best, on average
	zone    []neighbour
	near    []sighting // of each tile, around the cell that was looked at last
	turn    int        // counts these looks
}

// neighbour is a cell near another, which should not have the same tile.
type neighbour struct {
	x, y    int
	blocked bool  // it must not
	cost    int64 // otherwise
}

// sighting is a tile around a cell, seen in a turn.
type sighting struct {
	turn    int
	blocked bool
	cost    int64
}

func newChooser(c *Cells, list []features, reuse int) *chooser {
	n := c.Cols * c.Rows
	p := &chooser{
		cells: c, list: list, byLight: make([]int32, len(list)), tiles: make([]int32, n), mean: make([][means]int32, n),
		carry: make([][means]int32, n), uses: make([]int64, len(list)), near: make([]sighting, len(list)),
	}
	for i := range p.byLight {
		p.byLight[i] = int32(i)
	}
	slices.SortFunc(p.byLight, func(a, b int32) int { return cmp.Or(cmp.Compare(list[a][0], list[b][0]), cmp.Compare(a, b)) })
	for i := range p.tiles {
		p.tiles[i] = -1
		f := featuresOf(c.Cell(i))
		p.mean[i] = [means]int32{int32(f[0]), int32(f[1]), int32(f[2])}
	}
	p.measureSpacing()
	percent := int64(reuse)
	p.price = p.spacing * (100 - percent) * (100 - percent) / 10_000
	if reuse == Once {
		p.price = 1 << 34 // more than any distance: a tile comes again when all others have come as often
	} else if len(list) < n {
		p.price = p.price * int64(len(list)) / int64(n)
	}
	p.makeZone(30 - percent/10)
	return p
}

// measureSpacing searches the whole library for some of the cells.
func (p *chooser) measureSpacing() {
	const samples, match = 500, 8
	step := len(p.tiles)/samples + 1
	sum, n := int64(0), int64(0)
	for i := 0; i < len(p.tiles); i += step {
		f := featuresOf(p.cells.Cell(i))
		best := make([]int32, 0, match+1)
		limit := int32(math.MaxInt32)
		for t := range p.list {
			if d := distance(&f, &p.list[t], limit); d < limit || len(best) < match {
				at, _ := slices.BinarySearch(best, d)
				best = slices.Insert(best, at, d)
				best = best[:min(len(best), match)]
				if len(best) == match {
					limit = best[match-1]
				}
			}
		}
		sum += int64(best[len(best)-1] - best[0])
		n++
	}
	p.spacing = sum / n
}

// makeZone makes the zone around a cell that must not repeat its tile. The radius is in tenths of a
// cell. It is smaller for a small library, so that half of the tiles are never blocked. Up to twice
// the radius a repeated tile costs extra.
func (p *chooser) makeZone(radius int64) {
	for blocked := len(p.list); 2*blocked >= len(p.list) && radius >= 0; radius-- {
		p.zone, blocked = nil, 0
		reach := int(radius/5 + 1)
		for y := -reach; y <= reach; y++ {
			for x := -reach; x <= reach; x++ {
				d, squared := int64(x*x+y*y)*100, radius*radius
				switch {
				case d == 0 || d >= 4*squared:
				case d <= squared:
					p.zone = append(p.zone, neighbour{x: x, y: y, blocked: true})
					blocked++
				default:
					p.zone = append(p.zone, neighbour{x: x, y: y, cost: p.spacing * (4*squared - d) / (6 * squared)})
				}
			}
		}
	}
}

// put gives a cell a tile, or takes it away if the tile is -1.
func (p *chooser) put(i int, tile int32) {
	sign, of := int32(1), tile
	if tile < 0 {
		sign, of = -1, p.tiles[i]
	}
	p.tiles[i] = tile
	p.uses[of] += int64(sign)
	x, y := i%p.cells.Cols, i/p.cells.Cols
	for k, w := range [9]int32{1, 2, 1, 2, 0, 2, 1, 2, 1} { // which are 12 in all
		u, v := x+k%3-1, y+k/3-1
		if u < 0 || v < 0 || u >= p.cells.Cols || v >= p.cells.Rows {
			continue
		}
		for c := range means {
			p.carry[v*p.cells.Cols+u][c] += sign * ((int32(p.list[of][c]) - p.mean[i][c]) * w / 12)
		}
	}
}

// look notes which tiles are around a cell.
func (p *chooser) look(i int) {
	p.turn++
	x, y := i%p.cells.Cols, i/p.cells.Cols
	for _, z := range p.zone {
		u, v := x+z.x, y+z.y
		if u < 0 || v < 0 || u >= p.cells.Cols || v >= p.cells.Rows {
			continue
		}
		if t := p.tiles[v*p.cells.Cols+u]; t >= 0 {
			s := &p.near[t]
			if s.turn != p.turn {
				*s = sighting{turn: p.turn}
			}
			s.blocked = s.blocked || z.blocked
			s.cost += z.cost
		}
	}
}

// blocked says whether a tile is too near to the cell that was looked at.
func (p *chooser) blocked(tile int32) bool {
	return p.near[tile].turn == p.turn && p.near[tile].blocked
}

// wanted has the features of a cell, with the colour that makes up for the errors around it: with the error e of the tile, the
// errors c around it and the weights w and b, w·e² + b·(e+c)² is least for it; and but for a constant that is w+b times the
// squared distance from it.
func (p *chooser) wanted(i int) features {
	f := featuresOf(p.cells.Cell(i))
	for c, b := range balance {
		f[c] -= int16(int64(p.carry[i][c]) * b / (own[c] + b))
	}
	return f
}

// mismatch is how far a tile is from wanted features, or some number above limit.
func mismatch(wanted, tile *features, limit int64) int64 {
	sum := int64(0)
	for c, b := range balance {
		sum += int64(square(wanted[c], tile[c])) * (own[c] + b - 16) >> 4 // 16 more are in the distance
	}
	if sum > limit {
		return sum
	}
	return sum + int64(distance(wanted, tile, int32(min(limit-sum, math.MaxInt32))))
}

// best returns the tile of the lowest cost for a cell without a tile. It begins with tiles of the
// wanted lightness, and ends where the lightness alone costs more than the best so far.
func (p *chooser) best(i int) int32 {
	p.look(i)
	wanted := p.wanted(i)
	cost, tile := int64(math.MaxInt64), int32(-1)
	try := func(t int32) (more bool) {
		f := &p.list[t]
		if light := int64(square(wanted[0], f[0])); light*(own[0]+balance[0])>>4 > cost {
			return false
		}
		if p.blocked(t) {
			return true
		}
		extra := p.price * p.uses[t]
		if s := &p.near[t]; s.turn == p.turn {
			extra += s.cost
		}
		if extra > cost {
			return true
		}
		if d := extra + mismatch(&wanted, f, cost-extra); d < cost || d == cost && t < tile {
			cost, tile = d, t
		}
		return true
	}
	above, _ := slices.BinarySearchFunc(p.byLight, wanted[0], func(t int32, light int16) int { return cmp.Compare(p.list[t][0], light) })
	below := above - 1
	for above < len(p.byLight) || below >= 0 {
		if above < len(p.byLight) && try(p.byLight[above]) {
			above++
		} else {
			above = len(p.byLight)
		}
		if below >= 0 && try(p.byLight[below]) {
			below--
		} else {
			below = -1
		}
	}
	return tile
}

// exchange improves a choice with all tiles about equally often: the last cells had to take the
// remaining tiles. Two cells exchange their tiles if the pair matches better afterwards.
func (p *chooser) exchange(ctx context.Context, random source64) error {
	const perCell, most = 64, 1 << 26
	n := len(p.tiles)
	for k := range min(n*perCell, most) {
		if k%4096 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		a, b := random.below(n), random.below(n)
		s, t := p.tiles[a], p.tiles[b]
		if s == t || p.gain(a, b) <= 0 {
			continue
		}
		p.put(a, -1)
		p.put(b, -1)
		p.look(a)
		fits := !p.blocked(t)
		p.look(b)
		if fits && !p.blocked(s) {
			s, t = t, s
		}
		p.put(a, s)
		p.put(b, t)
	}
	return nil
}

// gain is how much better the tiles match if two cells exchange them. The mean colours are compared first, because that is quick.
func (p *chooser) gain(a, b int) int64 {
	s, t := &p.list[p.tiles[a]], &p.list[p.tiles[b]]
	far := func(cell int, f *features) (sum int64) {
		for c, m := range p.mean[cell] {
			sum += int64(int32(f[c])-m) * int64(int32(f[c])-m)
		}
		return sum
	}
	if far(a, s)+far(b, t) <= far(a, t)+far(b, s) {
		return 0
	}
	f, g := featuresOf(p.cells.Cell(a)), featuresOf(p.cells.Cell(b))
	const all = math.MaxInt32
	return mismatch(&f, s, all) + mismatch(&g, t, all) - mismatch(&f, t, all) - mismatch(&g, s, all)
}

// source64 draws numbers in the same way on every machine.
type source64 struct{ *rand.PCG }

// below returns a number from 0 to n-1.
func (s source64) below(n int) int { return int(s.Uint64() >> 32 * uint64(n) >> 32) }

// order returns the numbers from 0 to n-1 in a random order.
func (s source64) order(n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		k := s.below(i + 1)
		list[i] = list[k]
		list[k] = int32(i)
	}
	return list
}
