package layout

import (
	"context"
	"math/rand/v2"

	"github.com/millrace/millrace/examples/mosaic/tiles"
)

// Choose chooses a tile for each cell. It uses all processors, and fails if an option is out of bounds, or with the cause of ctx. Equal
// cells, libraries and options give equal layouts, on every machine.
func Choose(ctx context.Context, c *Cells, library *tiles.Library, o *Options) (*Layout, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o == nil {
		o = &Options{}
	}
	list, err := tileFeatures(library, c.Sub)
	if err != nil {
		return nil, err
	}
	p := newChooser(c, list)
	if err := p.match(ctx); err != nil {
		return nil, err
	}
	if err := p.run(ctx, o.Reuse); err != nil {
		return nil, err
	}
	return &Layout{Library: library.ID(), Tint: o.Tint, Cells: c, Tiles: p.tiles}, nil
}

const (
	// maxMatches is how many of the best matches of a cell are found beforehand, on all processors.
	maxMatches = 32
	// allMatches bounds the memory for them, at 8 bytes each.
	allMatches = 1 << 24
)

// chooser chooses the tiles of a mosaic. The cells are given their tiles one after the other in a random order, so that the choice has no
// direction that could be seen.
type chooser struct {
	cells *Cells
	list  []features // of the tiles
	tree  *tree      // of the same

	matches int         // of each cell
	best    []candidate // best first, those of one cell together
	spacing int64       // how much worse the eighth match is than the best, on average

	tiles  []int32        // of the cells; -1 means none yet
	mean   [][means]int16 // what the cells should look like
	carry  [][means]int16 // the errors around each cell, weighted
	locked []bool         // cells that are not to change

	uses   []int32 // of each tile
	prices []int64 // of using a tile once more
	price  int64   // of each use, times the number of cells divided by that of tiles
	quota  int32   // uses of a tile that are not yet too many; 0 means any number

	zone zone
	seen []sighting // of each tile
	turn uint32     // counts the looks around a cell
}

// sighting is a tile that was seen around a cell.
type sighting struct {
	turn    uint32 // the look; an older one means that it was not seen
	blocked bool
	cost    int64
}

func newChooser(c *Cells, list []features) *chooser {
	n := c.Cols * c.Rows
	p := &chooser{
		cells: c, list: list, tree: newTree(list), matches: min(max(allMatches/n, 4), maxMatches, len(list)),
		tiles: make([]int32, n), mean: make([][means]int16, n), carry: make([][means]int16, n), locked: make([]bool, n),
		uses: make([]int32, len(list)), prices: make([]int64, len(list)), seen: make([]sighting, len(list)),
	}
	for i := range p.tiles {
		p.tiles[i] = -1
	}
	p.best = make([]candidate, n*p.matches)
	return p
}

// features computes those of a cell. Keeping them would take too much memory.
func (p *chooser) features(i int) features {
	return featuresOf(p.cells.Cell(i))
}

func (p *chooser) matchesOf(i int) []candidate { return p.best[i*p.matches : (i+1)*p.matches] }

// match finds the best matches of every cell.
func (p *chooser) match(ctx context.Context) error {
	err := eachRow(ctx, p.cells.Rows, func() func(y int) {
		s := nearest{tree: p.tree}
		return func(y int) {
			for i := y * p.cells.Cols; i < (y+1)*p.cells.Cols; i++ {
				f := p.features(i)
				p.mean[i] = [means]int16(f[:means])
				s.find(&f, p.best[i*p.matches:i*p.matches:(i+1)*p.matches])
			}
		}
	})
	sum := int64(0)
	for i := range p.tiles {
		m := p.matchesOf(i)
		sum += int64(m[min(7, len(m)-1)].distance() - m[0].distance())
	}
	p.spacing = sum / int64(len(p.tiles))
	return err
}

// run chooses all tiles.
func (p *chooser) run(ctx context.Context, r Reuse) error {
	d := r.dial()
	p.price = d.price * p.spacing / 100
	p.zone = newZone(d.radius, len(p.list), p.spacing)
	goal := int(min(d.cover*int64(p.plainMatches())/100, d.atMost*int64(len(p.list))/100))
	if r == Once {
		p.quota = int32((len(p.tiles) + len(p.list) - 1) / len(p.list))
		goal = len(p.list)
	}
	random := source64{rand.NewPCG(1, 2)}
	for k, i := range random.order(len(p.tiles)) {
		if k%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		p.put(int(i), p.choose(int(i)))
	}
	if r == Once {
		if err := p.exchange(ctx, random); err != nil {
			return err
		}
	}
	return p.cover(ctx, goal, random)
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
