package pool

import (
	"slices"
	"time"

	"github.com/millrace/millrace/internal/waiting"
)

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

// expected is how long a member that got fewer slots than it wants counts as one that waits, while its
// dequeue is sent. Otherwise the slots that come free in that moment would go to whoever waits then, one
// after the other, and a member with long handlers would soon have them all. It is longer than most
// dequeues take, and bounds for how long those slots are kept in vain if one takes longer.
const expected = 250 * time.Millisecond

// ask makes m one that waits. Requires pool.mu.
func (m *Member) ask() {
	if !m.asks {
		m.asks = true
		m.pool.asking = append(m.pool.asking, m)
	}
	m.waits = true
}

// expect makes m, which has taken this many slots, one that will soon ask again, or that does not ask if it
// has all that it wants. Requires pool.mu.
func (m *Member) expect(taken int) {
	m.stopAsking() // and begin again at the end
	m.request.Most -= taken
	m.soon = time.Now().Add(expected)
	if m.hungry && m.request.Most > 0 {
		m.ask()
		m.waits = false
	}
}

// stopAsking makes m one that does not ask for slots. Requires pool.mu.
func (m *Member) stopAsking() {
	if m.asks {
		m.asks, m.waits, m.told = false, false, false
		p := m.pool
		p.asking = slices.DeleteFunc(p.asking, func(one *Member) bool { return one == m })
	}
}

// arm makes sure that slots which are kept for members that do not ask again go to those that wait.
// Requires mu.
func (p *Pool) arm() {
	if p.armed {
		return
	}
	var first time.Time
	waiting := false
	for _, m := range p.asking {
		waiting = waiting || m.waits
		if !m.waits && (first.IsZero() || m.soon.Before(first)) {
			first = m.soon
		}
	}
	if first.IsZero() || !waiting {
		return
	}
	p.armed = true
	if p.timer == nil {
		p.timer = time.AfterFunc(time.Until(first), p.forget)
	} else {
		p.timer.Reset(time.Until(first))
	}
}

// forget ends the expectation of members that have not asked again.
func (p *Pool) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = false
	p.passTime()
	now := time.Now()
	for _, m := range slices.Clone(p.asking) {
		if !m.waits && !now.Before(m.soon) {
			m.stopAsking()
		}
	}
	p.wake()
	p.arm()
}

// Slots come in whole numbers, in batches, and return when handlers do, so that at any moment what
// members hold is only roughly in proportion to their weights, and a rough share could last for ever. So
// the pool adds up by how much each has been ahead of its share, and puts it back by that for a
// while. Only members that want more than they get count.
const (
	leadSecond = 1 * time.Second  // a lead of one slot for so long counts as one slot more
	leadMemory = 10 * time.Second // a lead of the whole share counts for so long at most
	leadPart   = 4                // a lead counts as a part of the share at most, or one slot
)

// passTime adds what has passed since the last call to the leads. It is called before anything changes.
// Requires mu.
func (p *Pool) passTime() {
	if p.strict || p.hungry < 2 {
		p.passed = time.Time{}
		return
	}
	now := time.Now()
	last := p.passed
	p.passed = now
	if last.IsZero() || !now.After(last) {
		return
	}
	p.forgetHunger(now)
	seconds := now.Sub(last).Seconds()
	held, weights := 0, 0
	for _, m := range p.members {
		if m.hungry {
			held += m.held
			weights += m.weight
		}
	}
	perWeight := float64(held) / float64(weights)
	for _, m := range p.members {
		if m.hungry {
			m.share = perWeight * float64(m.weight)
			limit := m.share * leadMemory.Seconds()
			m.lead = min(max(m.lead+(float64(m.held)-m.share)*seconds, -limit), limit)
		}
	}
}

// forgetHunger ends the hunger of members that have not asked for long: they are paused, or in an outage. Their
// shares would count as what the others are ahead. Requires mu.
func (p *Pool) forgetHunger(now time.Time) {
	for _, m := range p.members {
		if m.hungry && !m.waits && now.Sub(m.soon) > leadMemory {
			m.setHungry(false)
			m.lead, m.share = 0, 0
		}
	}
}

// ahead returns how many slots the lead of m counts for; less than zero if it is behind. Requires pool.mu.
func (m *Member) ahead() float64 {
	limit := max(m.share/leadPart, 1)
	return min(max(m.lead/leadSecond.Seconds(), -limit), limit)
}

// setHungry records whether m wants more slots than it gets. One that has all that it wants for a moment
// keeps its lead, one that has had it for long begins anew. Requires pool.mu.
func (m *Member) setHungry(hungry bool) {
	if hungry == m.hungry {
		return
	}
	m.hungry = hungry
	if !hungry {
		m.pool.hungry--
		m.fed = time.Now()
		return
	}
	m.pool.hungry++
	if time.Since(m.fed) > leadMemory {
		m.lead, m.share = 0, 0
	}
}
