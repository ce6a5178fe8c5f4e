package slots

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
func (p *Shared) allot() {
	free := max(p.slots-p.used, 0)
	common := max(free-p.idle, 0)
	p.countRivals()
	for _, m := range p.asking {
		m.most = min(m.request.Most, m.speculation())
		m.least = min(m.worth(), m.most)
		m.own = min(m.unused(), m.most, free)
		m.granted, m.kept = m.own, 0
		m.block = max(m.least-m.own, 1)
		m.place()
	}
	for common > 0 {
		m := p.next()
		if m == nil {
			return
		}
		left := common - p.keptBefore(m.rank)
		if left <= 0 {
			return
		}
		if m.block > left {
			m.kept = left
			return
		}
		m.granted += m.block
		common -= m.block
		m.block = 1
		m.place()
	}
}

// place works out the place of m among those of its rank. A block counts by its middle: so members with blocks
// of different sizes, and with large and small weights, have their shares on average. If there are enough
// slots, members without one come first. Otherwise members take turns: those that hold little and are behind come
// first, and of those that are equally far behind the one that has waited longest. Requires shared.mu.
func (m *Member) place() {
	holds := m.held + m.granted
	m.first = holds == 0 && !m.tier.crowded
	m.middle = (float64(holds) + float64(m.block)/2 + m.ahead()) / float64(m.weight)
}

// next returns the member that comes first of those that would take more, or nil. Requires mu.
func (p *Shared) next() (first *Member) {
	for _, m := range p.asking {
		if m.granted < m.most && (first == nil || m.before(first)) {
			first = m
		}
	}
	return first
}

// before reports whether m comes before one that has waited longer.
func (m *Member) before(other *Member) bool {
	switch {
	case m.rank != other.rank:
		return m.rank < other.rank
	case m.first || other.first:
		return !other.first
	}
	return m.middle < other.middle
}

// busyFor is for how long lower ranks leave slots to a member whose last dequeue has shown a backlog, until
// it asks again. It is longer than slow dequeues take, and than a listener lingers for slots of its own.
const busyFor = 5 * time.Second

// setBusy records whether the last dequeue of m has shown a backlog. Requires shared.mu.
func (m *Member) setBusy(busy bool) {
	m.busy = time.Time{}
	if busy && m.shared.ranked() {
		m.busy = time.Now().Add(busyFor)
	}
}

// keptBefore returns how many slots are kept for busy members of the ranks before this one: what they can
// use beyond what they hold, would get, and have in reserve. Requires mu.
func (p *Shared) keptBefore(rank int) (n int) {
	if !p.ranked() {
		return 0
	}
	for _, m := range p.members {
		if m.rank < rank && !m.busy.IsZero() {
			n += max(m.request.Bound-max(m.held+m.granted, m.reserve), 0)
		}
	}
	return n
}

// ranked reports whether members differ in rank. Requires mu.
func (p *Shared) ranked() bool { return len(p.tiers) > 1 }

// tier is what the members of one rank have in common.
type tier struct {
	rank    int
	hungry  int  // members that want more than they get
	crowded bool // these are more than the slots without reserves: they take turns
	rivals  int  // members that ask
	weights int  // of the rivals

	// Of the hungry members, while time is passed.
	held, hungryWeights int
}

// tierOf returns the tier of a rank. Requires mu.
func (p *Shared) tierOf(rank int) *tier {
	i := slices.IndexFunc(p.tiers, func(t *tier) bool { return t.rank == rank })
	if i < 0 {
		i = len(p.tiers)
		p.tiers = append(p.tiers, &tier{rank: rank})
	}
	return p.tiers[i]
}

// countRivals counts those that ask, by rank. Requires mu.
func (p *Shared) countRivals() {
	for _, t := range p.tiers {
		t.rivals, t.weights = 0, 0
		t.crowded = t.hungry > p.slots-p.reserved
	}
	for _, m := range p.asking {
		m.tier.rivals++
		m.tier.weights += m.weight
	}
}

// contendedPart is the part of its share that a member waits for while others wait too. More would save
// requests, and make what a member holds vary by more.
const contendedPart = 3

// worth returns how many slots are worth a dequeue to m, beside the rivals of its rank. A member without any
// does not wait for more than one. Requires shared.mu.
func (m *Member) worth() int {
	switch {
	case m.held == 0:
		return 1
	case m.tier.rivals == 1:
		return m.request.Least
	}
	share := max(m.reserve, m.shared.slots*m.weight/m.tier.weights)
	return min(m.request.Least, max(share/contendedPart, 1))
}

// served reports whether m gets as many slots as are worth a dequeue, after allot. A member that gets
// only slots of its own reserve, which others cannot use meanwhile, is served like one that has no
// other slots. Requires shared.mu.
func (m *Member) served() bool {
	least := m.least
	if m.granted == m.own {
		least = max(least*m.reserve/m.shared.slots, 1)
	}
	return m.granted >= least
}

// gathered returns how many slots are kept for m until they are enough. Requires shared.mu.
func (m *Member) gathered() int { return m.granted + m.kept }

// wake tells those of the waiting that get slots now, and those for which the first are kept, so that their
// linger begins. Each of them asks again at once. Requires mu.
func (p *Shared) wake() {
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

// ask makes m one that waits. Requires shared.mu.
func (m *Member) ask() {
	if !m.asks {
		m.asks = true
		m.shared.asking = append(m.shared.asking, m)
	}
	m.waits = true
}

// expect makes m, which has taken this many slots, one that will soon ask again, or that does not ask if it
// has all that it wants. Requires shared.mu.
func (m *Member) expect(taken int) {
	m.stopAsking() // and begin again at the end
	m.request.Most -= taken
	m.soon = time.Now().Add(expected)
	if m.hungry && m.request.Most > 0 {
		m.ask()
		m.waits = false
	}
}

// stopAsking makes m one that does not ask for slots. Requires shared.mu.
func (m *Member) stopAsking() {
	if m.asks {
		m.asks, m.waits, m.told = false, false, false
		m.allotment = allotment{}
		p := m.shared
		p.asking = slices.DeleteFunc(p.asking, func(one *Member) bool { return one == m })
	}
}

// arm makes sure that slots which are kept for members that do not ask again go to those that wait.
// Requires mu.
func (p *Shared) arm() {
	var first time.Time
	waiting := false
	for _, m := range p.members {
		if m.waits {
			waiting = true
			continue
		}
		if m.asks {
			first = earlier(first, m.soon)
		}
		first = earlier(first, m.busy)
	}
	if first.IsZero() || !waiting || !p.due.IsZero() && !first.Before(p.due) {
		return
	}
	p.due = first
	if p.timer == nil {
		p.timer = time.AfterFunc(time.Until(first), p.forget)
	} else {
		p.timer.Reset(time.Until(first))
	}
}

// earlier returns the earlier of two times that are not zero.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// forget ends the expectation of members that have not asked again.
func (p *Shared) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.due = time.Time{}
	p.passTime()
	now := time.Now()
	for _, m := range p.members {
		if m.waits {
			continue
		}
		if !now.Before(m.busy) {
			m.busy = time.Time{}
		}
		if !now.Before(m.soon) {
			m.stopAsking()
		}
	}
	p.wake()
	p.arm()
}

// Slots come in whole numbers, in batches, and return when handlers do, so that at any moment what
// members hold is only roughly in proportion to their weights, and a rough share could last for ever. So
// Shared adds up by how much each member has been ahead of its share, and holds it back by that for a
// while. Only members that want more than they get count.
const (
	leadSecond = 1 * time.Second  // a lead of one slot for so long counts as one slot more
	leadMemory = 10 * time.Second // a lead of the whole share, or of one slot, counts for so long at most
	turnMemory = 10 * time.Minute // the same where members take turns: the longest handler that counts fully
	leadPart   = 4                // a lead counts as a part of the share at most, or one slot
)

// passTime adds what has passed since the last call to the leads. It is called before anything changes.
// Requires mu.
func (p *Shared) passTime() {
	now := time.Now()
	last := p.passed
	p.passed = now
	if last.IsZero() || !now.After(last) {
		return
	}
	p.forgetHunger(now)
	for _, t := range p.tiers {
		t.held, t.hungryWeights = 0, 0
	}
	for _, m := range p.members {
		if m.hungry {
			m.tier.held += m.held
			m.tier.hungryWeights += m.weight
		}
	}
	seconds := now.Sub(last).Seconds()
	for _, m := range p.members {
		// Others do not owe anything to one that only looks for work, but its turn comes nearer.
		looks := m.waits && m.tier.crowded
		if m.tier.hungryWeights == 0 || !m.hungry && !looks {
			continue
		}
		m.share = float64(m.tier.held*m.weight) / float64(m.tier.hungryWeights)
		low := max(m.share, 1) * leadMemory.Seconds()
		high := low
		if m.tier.crowded {
			high = turnMemory.Seconds()
		}
		m.lead = min(max(m.lead+(float64(m.held)-m.share)*seconds, -low), high)
	}
}

// forgetHunger ends the hunger of members that have not asked for long: they are paused, or in an outage. Their
// shares would count as what the others are ahead. Requires mu.
func (p *Shared) forgetHunger(now time.Time) {
	for _, m := range p.members {
		if m.hungry && !m.waits && now.Sub(m.soon) > leadMemory {
			m.setHungry(false)
			m.lead, m.share = 0, 0
		}
	}
}

// ahead returns how many slots the lead of m counts for; less than zero if it is behind. Requires shared.mu.
func (m *Member) ahead() float64 {
	limit := max(m.share/leadPart, 1)
	return min(max(m.lead/leadSecond.Seconds(), -limit), limit)
}

// setHungry records whether m wants more slots than it gets. One that has all that it wants for a moment
// keeps its lead, one that has had it for long begins anew. Requires shared.mu.
func (m *Member) setHungry(hungry bool) {
	if hungry == m.hungry {
		return
	}
	m.hungry = hungry
	if !hungry {
		m.tier.hungry--
		m.fed = time.Now()
		return
	}
	m.tier.hungry++
	if time.Since(m.fed) > leadMemory {
		m.lead, m.share = 0, 0
	}
}
