package scaling

import "math"

// stepLeast bounds what one sample alone may add, because it may be wrong: as many instances as there
// are, or this if that is more.
const stepLeast = 4

// hasTime is from how many times Start on a Target leaves time for growth in steps, which costs less
// if what came was all that comes.
const hasTime = 2

// why is what a decision turned on.
type why int

const (
	asWanted      why = iota // as many as wanted
	noDepth                  // the backlog is unknown
	drainedAnyway            // the present instances drain the backlog in time
	useless                  // more are wanted, but the last growth did not help
	boundedByStep            // more are wanted than one sample may add
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
// of one instance. B is the greater of the backlog now and the one when a new instance would work. While
// arrivals rise steadily, λ is at least ρ times their rate at that time. With a Wait W, only B − λ·W
// counts, and if that is negative, over at least 5·W instead of T.
//
// A history without samples decides nothing: From and Instances are both the least of the policy.
// With a bound of CPU or Memory, at least as many are wanted as use no more than it: instances × use / bound.
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
	n := max(ceil(m.need*margin), r.forUse(m, margin)) + r.spare
	if n == 0 && !(m.depthKnown && m.depth == 0) {
		return 1 // something may be in work, or delayed
	}
	return n
}

// grow adds instances at once, but not for a backlog that the present ones will have drained in
// time. It adds more than a step allows only if the sample before called for them too, and there is no
// time for steps.
func (c *choice) grow(goal int) {
	m := &c.now
	lasting := max(ceil(m.load/(c.utilization*m.slots)), c.forUse(m, 1)) + c.spare
	if lasting <= c.from && !c.stuck() {
		if c.drain = c.drainTime(m); c.drain <= c.inTime(m) {
			c.why = drainedAnyway
			return
		}
	}
	if c.before = c.lastGrowth(); c.before.useless {
		c.why = useless
		return
	}
	step := c.step()
	if step < goal && c.target <= hasTime*c.start && c.past.at(1) != nil {
		var m moment
		if c.look(1, &m); m.backlogKnown {
			step = max(step, c.clamp(c.wants(&m, 1)))
		}
	}
	c.instances, c.why = goal, asWanted
	switch {
	case step < goal:
		c.instances, c.why = step, boundedByStep
	case goal != c.wanted:
		c.why = bounded
	}
}

// step is how many instances one sample alone may call for.
func (c *choice) step() int { return c.from + max(c.from, stepLeast) }

// inTime is how many seconds the backlog may take. Target counts from when the instances on their way
// work. Another instance helps only once it has started.
func (c *choice) inTime(m *moment) float64 {
	if m.working < m.expected {
		return c.start + c.target
	}
	return max(c.target, c.start)
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

// drainTime is how long the present instances take for the backlog with full slots, in seconds:
// those that work now, and later those too that were asked for.
func (c *choice) drainTime(m *moment) float64 {
	if net := -m.growth(); net > 0 && m.backlog <= net*c.start {
		return m.backlog / net
	}
	net := m.expected*m.slots/m.handling - m.arrival
	if net <= 0 {
		return inf
	}
	return c.start + m.ahead/net
}

var inf = math.Inf(1)

// margin is by how much the load must be below what fewer instances can do before it counts as less:
// so noise at the edge between two numbers does not add and remove instances in turn.
const margin = 1.1

// leastGap is how long samples may be missing, in seconds, while the wait for removing goes on.
const leastGap = 120.0

// shrink removes instances down to the most that were wanted in DownAfter, for the load alone if what
// waited then has been drained and was not to wait. A time in which figures are missing does not
// count; a long one begins the wait anew.
func (c *choice) shrink() {
	if !c.whole(&c.now) {
		c.why = notSure
		return
	}
	if c.drains(&c.now) {
		c.why = stillDraining
		return
	}
	kept := c.clamp(c.wants(&c.now, margin))
	if kept >= c.from {
		c.why = nearlyAsMany
		return
	}
	most := kept
	drained := c.wait == 0 && c.now.backlog <= c.now.expected*c.now.slots // but for what the slots take next
	var m moment
	for k := 1; c.fewerFor < c.downAfter; k++ {
		p := c.past.at(k)
		if p == nil || p.age-c.fewerFor > max(c.downAfter/2, leastGap) {
			break
		}
		age := p.age
		c.look(k, &m)
		if !m.backlogKnown {
			continue
		}
		if drained {
			m.need = min(m.need, m.load/(c.utilization*m.slots))
		}
		wanted := c.clamp(c.wants(&m, margin))
		if wanted >= c.from {
			break
		}
		most = max(most, wanted)
		if c.whole(&m) {
			c.fewerFor = age
		}
	}
	if c.fewerFor < c.downAfter {
		c.why = notLongEnough
		return
	}
	c.instances = most
	switch goal := c.clamp(c.wanted); {
	case most > kept:
		c.why = heldByThePast
	case most > goal:
		c.why = heldByMargin
	case goal > c.wanted:
		c.why = bounded
	}
}

// drainFirst is how many seconds the present instances must take for a backlog before they are kept
// until it is gone.
const drainFirst = 10

// drains reports whether there is a backlog that is not to wait and keeps the present instances busy
// for a while. To remove some of them saves nothing then: the others work longer for it, and its last
// messages wait longer. What is wanted falls with the backlog, so that without this it would be
// drained ever more slowly.
func (r *rules) drains(m *moment) bool {
	return (m.backlog-m.later*r.wait)*m.handling > drainFirst*m.expected*m.slots
}

// whole reports whether nothing is unknown or guessed that could make too few instances look like
// enough. Nothing is needed but the depth if the queues are empty.
func (r *rules) whole(m *moment) bool {
	switch {
	case !m.depthKnown, m.readyKnown && m.ready < m.instances:
		return false
	case m.depth == 0:
		return true
	case !m.slotsKnown, !r.useKnown(m):
		return false
	case m.arrivalKnown || m.backlog > 0:
		return m.handlingKnown
	}
	return true
}

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
// Growth that has raised the service at first has helped, whatever came then.
func (c *choice) lastGrowth() growth {
	var now, working, before, fewer mean
	var best, last float64 // service of two samples in a row since the growth, and of the last one
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
		case full && before.n == 0:
			best, last = max(best, min(last, p.service)), p.service
		}
	}
	if before.n < judgedBefore {
		return growth{}
	}
	g := growth{instances: fewer.of(), service: before.of()}
	after, grown := max(now.of(), best), working.of()/g.instances
	g.useless = g.service*leastAverage >= judgedMessages && after < g.service*(1+helped*(grown-1))
	return g
}
