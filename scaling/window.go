package scaling

import "math"

var inf = math.Inf(1)

// margin is by how much the load must be below what fewer instances can do before it counts as less:
// so noise at the edge between two numbers does not add and remove instances in turn.
const margin = 1.1

// leastGap is how long samples may be missing, in seconds, while the wait for removing goes on.
const leastGap = 120.0

// shrink removes instances down to the most that were wanted in DownAfter. A time in which figures
// are missing does not count; a long one begins the wait anew.
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
	return (m.backlog-m.later*r.wait)*m.handling > drainFirst*m.instances*m.slots
}

// whole reports whether nothing is unknown or guessed that could make too few instances look like
// enough. Nothing is needed but the depth if the queues are empty.
func (r *rules) whole(m *moment) bool {
	switch {
	case !m.depthKnown, m.readyKnown && m.ready < m.instances:
		return false
	case m.depth == 0:
		return true
	case !m.slotsKnown:
		return false
	case m.arrivalKnown || m.backlog > 0:
		return m.handlingKnown
	}
	return true
}
