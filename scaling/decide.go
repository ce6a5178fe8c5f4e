package scaling

// Bounds of one step of growth, as the Horizontal Pod Autoscaler of Kubernetes has them by default:
// within stepOver there may come as many instances as there were, or stepLeast if that is more.
const (
	stepOver  = 15.0 // seconds
	stepLeast = 4
)

// why is what a decision turned on.
type why int

const (
	asWanted      why = iota // as many as wanted
	noDepth                  // the backlog is unknown
	drainedAnyway            // the present instances drain the backlog in time
	useless                  // more are wanted, but the last growth did not help
	boundedByStep            // more are wanted than one step allows
	bounded                  // more or fewer are wanted than there may be
	nearlyAsMany             // hardly fewer are wanted
	notLongEnough            // fewer are wanted, but not for long enough
	notSure                  // fewer are wanted as far as is known, but some figures are not
	stillDraining            // fewer are wanted, but a backlog is being drained
	heldByMargin             // fewer are wanted, but with a margin against noise
	heldByThePast            // fewer are wanted now than at some time in the window
)

// Decide returns how many instances there should be now: at the time of the newest sample, the last
// one. Samples that are not in order are ignored, see [History.Add].
//
// Wanted are ⌈(λ·S + B·S/T) / (ρ·c)⌉ instances and the spare ones, where λ is the arrival rate, S the
// time that a message occupies a slot, B the backlog, T the Target, ρ the Utilization and c the slots
// of one instance. λ is that of the time when a new instance would work, if it has a trend, and B the
// greater of that of now and that of then. With a Wait W, only B − λ·W counts, and if that is
// negative, over at least 5·W instead of T.
//
// A history without samples decides nothing: From and Instances are both the least of the policy.
func (p Policy) Decide(h History) Decision {
	r := p.rules()
	if len(h) == 0 {
		return Decision{From: r.least, Instances: r.least, Wanted: r.least, Why: "no decision: nothing was measured yet"}
	}
	c := choice{rules: r, past: past{h: h, next: len(h) - 1}, latest: findLatest(h)}
	c.choose()
	return Decision{
		At: h[len(h)-1].At, From: c.from, Instances: c.instances, Wanted: c.wanted, Why: c.sentence(),
	}
}

// choice is a decision in the making.
type choice struct {
	rules
	past                    past
	latest                  latest
	quality                 quality // of the forecast
	now                     moment
	from, instances, wanted int
	why                     why
	drain                   float64 // seconds until full slots have drained the backlog
	fewerFor                float64 // seconds for which fewer were wanted
	base                    int     // instances that a step of growth starts from
	before                  growth  // the one before this
	cut                     bool    // a bound changed instances
}

func (c *choice) choose() {
	c.look(0, &c.now)
	c.from = max(c.past.h[len(c.past.h)-1].Instances, 0)
	c.instances, c.wanted = c.from, c.from
	if !c.now.backlogKnown {
		c.why = noDepth
	} else {
		c.wanted = c.wants(&c.now, 1)
		switch goal := c.clamp(c.wanted); {
		case goal > c.from:
			c.grow(goal)
		case goal < c.from:
			c.shrink()
		case goal != c.wanted:
			c.why = bounded
		}
	}
	c.cut = c.instances != c.clamp(c.instances)
	c.instances = c.clamp(c.instances)
}

// bounded keeps n within the bounds of the policy.
func (r *rules) clamp(n int) int { return min(max(n, r.least), r.most) }

// wants is how many instances a moment calls for, with a margin on the load.
func (r *rules) wants(m *moment, margin float64) int {
	n := ceil(m.need*margin) + r.spare
	if n == 0 && !(m.depthKnown && m.depth == 0) {
		return 1 // something may be in work, or delayed
	}
	return n
}

// grow adds instances at once, but not for a backlog that the present ones will have drained in
// time, and not more than a step allows.
func (c *choice) grow(goal int) {
	m := &c.now
	lasting := ceil(m.load/(c.utilization*m.slots)) + c.spare
	if lasting <= c.from && !c.stuck() {
		if c.drain = c.drainTime(m); c.drain <= max(c.target, c.start) {
			c.why = drainedAnyway
			return
		}
	}
	if c.before = c.lastGrowth(); c.before.useless {
		c.why = useless
		return
	}
	c.base = c.leastLately()
	step := max(c.base+max(c.base, stepLeast), c.from)
	c.instances, c.why = goal, asWanted
	switch {
	case step < goal:
		c.instances, c.why = step, boundedByStep
	case goal != c.wanted:
		c.why = bounded
	}
}

// stuck reports whether the backlog should have been drained by now, at the speed that the figures
// promise, and has not even halved.
func (c *choice) stuck() bool {
	for k := 1; ; k++ {
		p := c.past.at(k)
		if p == nil {
			return false
		}
		waiting := p.visible
		if !known(waiting) {
			waiting = p.depth - c.now.working*c.now.slots // which are in work
		}
		if !(waiting >= c.now.backlog/2) { // or unknown
			return false
		}
		if p.age >= max(c.target, c.start) {
			return true
		}
	}
}

// leastLately is the least number of instances within the time of one step.
func (c *choice) leastLately() int {
	least := c.from
	for k := 1; ; k++ {
		p := c.past.at(k)
		if p == nil || p.age >= stepOver {
			return least
		}
		least = min(least, int(p.instances))
	}
}

// drainTime is how long the present instances take for the backlog with full slots, in seconds:
// those that work now, and later those too that were asked for.
func (c *choice) drainTime(m *moment) float64 {
	if net := -m.growth(); net > 0 && m.backlog <= net*c.start {
		return m.backlog / net
	}
	net := m.instances*m.slots/m.handling - m.arrival
	if net <= 0 {
		return inf
	}
	return c.start + m.ahead/net
}
