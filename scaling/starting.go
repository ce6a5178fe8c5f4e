package scaling

// starting tells working instances from those that still start. Those that were asked for within
// the time of a start come after the rest of it.
func (r *rules) starting(h History, i int, m *moment) {
	base := m.instances // how many there were before the time of a start
	from := i           // the oldest sample within it
	for j := i - 1; j >= 0; j-- {
		base = instances(&h[j])
		if h[i].At.Sub(h[j].At).Seconds() >= r.start {
			break
		}
		from = j
	}
	m.working = min(base, m.instances)
	if m.readyKnown {
		m.working = min(m.ready, m.instances)
	}
	// Those that should work by now and do not are not counted on.
	base = max(base, m.working)
	for j := from; j <= i; j++ {
		length := r.start
		if j > 0 {
			length = h[j].At.Sub(h[j-1].At).Seconds()
		}
		left := r.start - h[i].At.Sub(h[j].At).Seconds()
		if asked := min(instances(&h[j]), m.instances); asked > base && length > 0 {
			m.coming += (asked - base) * min(length, left) / r.start
		}
	}
}
