package pool

import (
	"slices"
	"time"
)

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
