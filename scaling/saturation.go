package scaling

// Figures of the judgment whether growth helped.
const (
	judgedOver     = 300.0 // seconds; after that growth is tried again
	judgedMessages = 100   // at least, in the time of an average
	judgedNow      = 3     // samples
	judgedBefore   = 2     // samples
	grownBy        = 1.5   // at least, so that noise does not decide
	helped         = 0.25
)

// growth is the last time that instances were added while messages waited all the time.
type growth struct {
	instances float64 // that worked before
	service   float64 // messages a second, before
	useless   bool    // service rose by less than a quarter of what it should have risen by
}

// lastGrowth judges the last growth. If it was useless, something else limits the service, such as a
// database that all instances share, and still more of them would not help. It may also be that jobs
// became longer at that very time, which looks the same; so the judgment holds for a few minutes only.
func (c *choice) lastGrowth(h History) growth {
	newest := len(h) - 1
	var now, working, before, fewer mean
	last := -1.0
	for j := newest; j >= 0 && before.n < judgedBefore; j-- {
		age := h[newest].At.Sub(h[j].At).Seconds()
		if age >= judgedOver {
			break
		}
		if age <= last {
			continue // from the future, or twice the same
		}
		last = age
		n, out, full := c.fullSlots(&h[j])
		switch {
		case now.n < judgedNow && (!full || age >= leastAverage):
			return growth{} // slots stood empty lately, or nobody knows
		case now.n < judgedNow:
			now.add(out, true)
			working.add(n, true)
		case full && n*grownBy <= working.sum/working.n:
			before.add(out, true)
			fewer.add(n, true)
		}
	}
	if before.n < judgedBefore {
		return growth{}
	}
	g := growth{instances: fewer.sum / fewer.n, service: before.sum / before.n}
	after, grown := now.sum/now.n, working.sum/working.n/g.instances
	g.useless = g.service*leastAverage >= judgedMessages && after < g.service*(1+helped*(grown-1))
	return g
}

// fullSlots reports how many instances worked and what they served, and whether more messages waited
// than they have slots.
func (c *choice) fullSlots(s *Sample) (working, out float64, full bool) {
	out, outKnown := rate(s.Service)
	working, workingKnown := count(s.Ready)
	waiting, waitingKnown := count(s.Visible)
	full = outKnown && workingKnown && waitingKnown && working > 0 && waiting >= working*c.now.slots
	return working, out, full
}
