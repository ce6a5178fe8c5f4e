package layout

import (
	"cmp"
	"container/heap"
	"context"
	"math"
	"slices"
)

// offer is a cell in which a tile could be used that is used nowhere.
type offer struct {
	loss int64 // how much worse the tile matches than what is there
	tile int32
	cell int32
}

// offers is a heap, the least loss first.
type offers []offer

func (o offers) Len() int { return len(o) }
func (o offers) Less(i, k int) bool {
	return cmp.Or(cmp.Compare(o[i].loss, o[k].loss), cmp.Compare(o[i].tile, o[k].tile), cmp.Compare(o[i].cell, o[k].cell)) < 0
}
func (o offers) Swap(i, k int) { o[i], o[k] = o[k], o[i] }
func (o *offers) Push(any)     { panic("nothing is added to the offers") }
func (o *offers) Pop() any {
	last := len(*o) - 1
	*o = (*o)[:last]
	return nil
}

// cover brings tiles that are used nowhere to the cells where they do least harm, until target tiles are used.
func (p *chooser) cover(ctx context.Context, target int, random source64) error {
	for last := -1; ; {
		idle := p.idle()
		used := len(p.list) - len(idle)
		if used >= target || used == last {
			return nil
		}
		last = used
		list, err := p.offers(ctx, idle, random)
		if err != nil {
			return err
		}
		p.accept(list, target-used)
	}
}

// idle returns the tiles that are used nowhere.
func (p *chooser) idle() []int32 {
	var idle []int32
	for t, n := range p.uses {
		if n == 0 {
			idle = append(idle, int32(t))
		}
	}
	return idle
}

// accept uses up to n of the tiles that are offered. What is accepted makes other offers worse, those around it above all, so that the
// tiles are scattered.
func (p *chooser) accept(list offers, n int) {
	heap.Init(&list)
	for n > 0 && len(list) > 0 {
		o := &list[0]
		cell := int(o.cell)
		if p.uses[o.tile] > 0 || p.locked[cell] || p.uses[p.tiles[cell]] < 2 {
			heap.Pop(&list)
			continue
		}
		if loss := p.loss(cell, o.tile); loss > o.loss {
			o.loss = loss
			heap.Fix(&list, 0)
			continue
		}
		p.take(cell)
		p.put(cell, o.tile)
		p.locked[cell] = true
		n--
	}
}

// loss is how much worse a tile matches a cell than what is there. Cells beside others that were locked cost more.
func (p *chooser) loss(cell int, tile int32) int64 {
	f := p.features(cell)
	m := p.wanted(cell)
	copy(f[:], m[:])
	crowd := int64(0)
	p.around(cell, func(j int, w int32) {
		if p.locked[j] {
			crowd += int64(w)
		}
	})
	const all = 1<<31 - 1
	return mismatch(&f, &p.list[tile], all) - mismatch(&f, &p.list[p.tiles[cell]], all) + crowd*p.spacing
}

// offers returns some cells for every idle tile.
func (p *chooser) offers(ctx context.Context, idle []int32, random source64) (offers, error) {
	const each = 24
	var cells []int32
	var list []features
	want, n := max(1<<14, 4*len(idle)), len(p.tiles)
	for i := range n {
		if random.below(n) < want && p.uses[p.tiles[i]] > 1 && !p.locked[i] {
			cells = append(cells, int32(i))
			list = append(list, p.features(i))
		}
	}
	if len(cells) == 0 {
		return nil, nil
	}
	search := newTree(list)
	found := make([]offers, len(idle))
	err := eachRow(ctx, len(idle), func() func(y int) {
		s := nearest{tree: search}
		best := make([]candidate, 0, each)
		return func(y int) {
			for _, c := range s.find(&p.list[idle[y]], best) {
				cell := cells[c.tile()]
				found[y] = append(found[y], offer{p.loss(int(cell), idle[y]), idle[y], cell})
			}
		}
	})
	return slices.Concat(found...), err
}

// plainMatches returns how many tiles a choice by mean colour alone would use.
func (p *chooser) plainMatches() int {
	seen := make([]bool, len(p.list))
	n := 0
	for i := range p.tiles {
		best, tile := int32(math.MaxInt32), int32(0)
		for _, c := range p.matchesOf(i) {
			if d := meanDistance(p.mean[i][:], &p.list[c.tile()]); d < best {
				best, tile = d, c.tile()
			}
		}
		if !seen[tile] {
			seen[tile] = true
			n++
		}
	}
	return n
}
