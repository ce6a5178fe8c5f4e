package pool

import "github.com/millrace/millrace/internal/waiting"

// allot works out what each of those that ask gets of the free slots. Slots of its own reserve are
// certain to a member. The others go one after the other to whoever comes first, but to each at first as
// many as make up its least: small batches cost requests. While there are too few for that they are
// kept for it, and those that come later get none, because otherwise they would always take what it
// waits for. It does not wait longer than its linger. Requires mu.
func (p *Pool) allot() {
	free := max(p.slots-p.used, 0)
	common := max(free-p.idle, 0)
	rivals, weights := p.rivals(0)
	for _, m := range p.asking {
		if p.strict {
			rivals, weights = p.rivals(m.rank)
		}
		m.most = min(m.request.Most, m.speculation())
		m.least = min(m.worth(rivals, weights), m.most)
		m.own = min(m.unused(), m.most, free)
		m.granted, m.kept = m.own, 0
		m.block = max(m.least-m.own, 1)
	}
	for common > 0 {
		m := p.next()
		if m == nil {
			return
		}
		if m.block > common {
			m.kept = common
			return
		}
		m.granted += m.block
		common -= m.block
		m.block = 1
	}
}

// next returns the member that comes first of those that would take more, or nil. Requires mu.
func (p *Pool) next() (first *Member) {
	for _, m := range p.asking {
		if m.granted < m.most && (first == nil || p.before(m, first)) {
			first = m
		}
	}
	return first
}

// before reports whether a comes before b, which has waited longer. A block counts by its middle: so
// members with blocks of different sizes, and with large and small weights, have their shares on average.
// Requires mu.
func (p *Pool) before(a, b *Member) bool {
	if p.strict && a.rank != b.rank {
		return a.rank < b.rank
	}
	holdsA, holdsB := a.held+a.granted, b.held+b.granted
	if holdsA == 0 || holdsB == 0 {
		return holdsB > 0
	}
	middleA, middleB := float64(holdsA)+float64(a.block)/2+a.ahead(), float64(holdsB)+float64(b.block)/2+b.ahead()
	return middleA*float64(b.weight) < middleB*float64(a.weight)
}

// contendedPart is the part of its share that a member waits for while others wait too. More would save
// requests, and make what a member holds vary by more.
const contendedPart = 3

// worth returns how many slots are worth a dequeue to m, while so many with these weights ask for the
// same slots. A member without any does not wait for more than one. Requires pool.mu.
func (m *Member) worth(rivals, weights int) int {
	switch {
	case m.held == 0:
		return 1
	case rivals == 1:
		return m.request.Least
	}
	share := max(m.reserve, m.pool.slots*m.weight/weights)
	return min(m.request.Least, max(share/contendedPart, 1))
}

// rivals returns how many members ask that do not come after this rank, and their weights. Requires mu.
func (p *Pool) rivals(rank int) (n, weights int) {
	for _, m := range p.asking {
		if !p.strict || m.rank <= rank {
			n++
			weights += m.weight
		}
	}
	return n, weights
}

// served reports whether m gets as many slots as are worth a dequeue, after allot. A member that gets
// only slots of its own reserve, which others cannot use meanwhile, is served like one that has no
// other slots. Requires pool.mu.
func (m *Member) served() bool {
	least := m.least
	if m.granted == m.own {
		least = max(least*m.reserve/m.pool.slots, 1)
	}
	return m.granted >= least
}

// gathered returns how many slots are kept for m until they are enough. Requires pool.mu.
func (m *Member) gathered() int { return m.granted + m.kept }

// wake tells those of the waiting that get slots now, and those for which the first are kept, so that their
// linger begins. Each of them asks again at once. Requires mu.
func (p *Pool) wake() {
	if len(p.asking) == 0 || p.used >= p.slots {
		return
	}
	p.allot()
	for _, m := range p.asking {
		if m.waits && (m.served() || m.gathered() > 0 && !m.told) {
			m.told = true
			waiting.Signal(m.freed, struct{}{})
		}
	}
}
