package pool

import "time"

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
