package scaling

// starting tells working instances from those that still start. Those that were asked for within
// the time of a start come after the rest of it.
func (c *choice) starting(k int, m *moment) {
	now := c.past.at(k).age
	base := m.instances // how many there were before the time of a start
	n := 1              // samples within it
	for p := c.past.at(k + 1); p != nil; p = c.past.at(k + n) {
		base = p.instances
		if p.age-now >= c.start {
			break
		}
		n++
	}
	m.working = min(base, m.instances)
	if m.readyKnown {
		m.working = min(m.ready, m.instances)
	}
	// Those that should work by now and do not are not counted on.
	base = max(base, m.working)
	for j := k + n - 1; j >= k; j-- {
		length := c.start
		if p := c.past.at(j + 1); p != nil {
			length = p.age - c.past.at(j).age
		}
		p := c.past.at(j)
		left := c.start - (p.age - now)
		if asked := min(p.instances, m.instances); asked > base {
			m.coming += (asked - base) * min(length, left) / c.start
		}
	}
}
