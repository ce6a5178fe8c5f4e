package layout

import "context"

const (
	// triesPerCell is how many exchanges are tried for each cell.
	triesPerCell = 64
	// maxTries bounds the time.
	maxTries = 1 << 26
)

// exchange improves a choice in which every tile has its quota: the last cells had to take what was left. Two cells
// exchange their tiles if both together match better afterwards.
func (p *chooser) exchange(ctx context.Context, random source64) error {
	n := len(p.tiles)
	for k := range min(n*triesPerCell, maxTries) {
		if k%4096 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		a, b := random.below(n), random.below(n)
		s, t := p.tiles[a], p.tiles[b]
		if s == t || p.meanGain(a, b) <= 0 || p.gain(a, b) <= 0 {
			continue
		}
		p.take(a)
		p.take(b)
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

// meanGain is how much nearer the mean colours come if two cells exchange their tiles.
func (p *chooser) meanGain(a, b int) int64 {
	s, t := &p.list[p.tiles[a]], &p.list[p.tiles[b]]
	now := int64(meanDistance(p.mean[a][:], s)) + int64(meanDistance(p.mean[b][:], t))
	return now - int64(meanDistance(p.mean[a][:], t)) - int64(meanDistance(p.mean[b][:], s))
}

// gain is how much better the tiles match if two cells exchange them.
func (p *chooser) gain(a, b int) int64 {
	s, t := &p.list[p.tiles[a]], &p.list[p.tiles[b]]
	f, g := p.features(a), p.features(b)
	const all = 1<<31 - 1
	return mismatch(&f, s, all) + mismatch(&g, t, all) - mismatch(&f, t, all) - mismatch(&g, s, all)
}
