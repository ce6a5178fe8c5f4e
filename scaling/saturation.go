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
func (c *choice) lastGrowth() growth {
	var now, working, before, fewer mean
	for k := 0; before.n < judgedBefore; k++ {
		p := c.past.at(k)
		if p == nil || p.age >= judgedOver {
			break
		}
		full := p.ready > 0 && p.visible >= p.ready*c.now.slots && known(p.service) // not if one is NaN
		switch {
		case now.n < judgedNow && (!full || p.age >= leastAverage):
			return growth{} // slots stood empty lately, or nobody knows
		case now.n < judgedNow:
			now.add(p.service)
			working.add(p.ready)
		case full && p.ready*grownBy <= working.of():
			before.add(p.service)
			fewer.add(p.ready)
		}
	}
	if before.n < judgedBefore {
		return growth{}
	}
	g := growth{instances: fewer.of(), service: before.of()}
	after, grown := now.of(), working.of()/g.instances
	g.useless = g.service*leastAverage >= judgedMessages && after < g.service*(1+helped*(grown-1))
	return g
}
