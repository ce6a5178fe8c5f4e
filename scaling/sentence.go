package scaling

import (
	"math"
	"strconv"
	"strings"
)

// sentence is a decision in words, with its numbers.
func (c *choice) sentence() string {
	var t text
	t.Grow(mostText)
	t.count("", float64(c.from), "")
	if c.instances == c.from {
		t.add(": stays, ")
	} else {
		t.count(" → ", float64(c.instances), ": ")
	}
	if c.why == noDepth {
		t.add("the depth is unknown")
		if c.cut {
			c.bound(&t, c.from)
		}
		return t.String()
	}
	c.figures(&t)
	t.add("; ")
	c.reason(&t)
	if c.cut && c.why != bounded {
		c.bound(&t, c.from)
	}
	c.missing(&t)
	return t.String()
}

func (c *choice) figures(t *text) {
	m := &c.now
	switch {
	case m.backlog < 0.5:
		t.add("none")
	case m.backlogIsMax:
		t.count("at most ", m.backlog, "")
	default:
		t.count("", m.backlog, "")
	}
	t.add(" waiting")
	if c.wait > 0 {
		t.count(", ", m.later*c.wait, " may")
	}
	if m.arrivalKnown {
		t.rate(", ", m.arrival, "/s in")
	}
	if m.later > 1.05*m.arrival {
		t.rate(", ", m.later, "/s in ")
		t.duration("", c.start, "")
	}
	if m.forecast.used {
		t.rate(" as at this time before (off by ", m.forecast.mistake, "/s on average, the latest figures by ")
		t.rate("", m.forecast.reactive, "/s)")
	}
	if m.serviceKnown {
		t.rate(", ", m.service, "/s out")
	}
	if m.arrivalKnown && m.serviceKnown && m.backlog >= 0.5 && c.wanted > c.from && c.why != drainedAnyway {
		if net := m.service - m.arrival; net > 1e-9*m.arrival {
			t.duration(", would drain in ", m.backlog/net, "")
		} else {
			t.add(", would not drain")
		}
		t.duration(", target ", c.target, "")
	}
}

func (c *choice) reason(t *text) {
	t.count("", float64(c.wanted), " wanted")
	if c.spare > 0 {
		t.count(", ", float64(c.spare), " of them spare")
	}
	switch c.why {
	case drainedAnyway:
		t.duration(", but full slots drain them in ", c.drain, ", target ")
		t.duration("", c.target, "")
		if c.drain > c.target {
			t.duration(", a new instance takes ", c.start, "")
		}
	case useless:
		t.count(", but the growth from ", c.before.instances, " did not raise ")
		t.rate("", c.before.service, "/s out")
	case boundedByStep:
		if c.base < stepLeast {
			t.add(", at most 4 more in one step")
		} else {
			t.add(", at most doubled in one step")
		}
	case bounded:
		c.bound(t, c.wanted)
	case nearlyAsMany:
		t.add(", hardly fewer")
	case notLongEnough:
		t.duration(", fewer wanted for ", c.fewerFor, " of ")
		t.duration("", c.downAfter, "")
	case stillDraining:
		t.add(", but none is removed until they are drained")
	case heldByMargin:
		t.add(", and a tenth more is kept")
	case heldByThePast:
		t.count(" now, at most ", float64(c.instances), " within ")
		t.duration("", c.downAfter, "")
	case notSure:
		t.add(", but none is removed without all figures")
	}
}

// bound says which bound keeps a number from being what there should be.
func (c *choice) bound(t *text, n int) {
	t.add(", ")
	if n > c.most {
		t.count("", float64(c.most), " at most")
		return
	}
	t.count("", float64(c.least), " at least")
}

func (c *choice) missing(t *text) {
	m := &c.now
	separator := "; unknown: "
	name := func(known bool, what string) {
		if !known {
			t.add(separator)
			t.add(what)
			separator = ", "
		}
	}
	name(m.depthKnown, "depth")
	name(m.arrivalKnown, "arrivals")
	name(m.handlingKnown, "handling time")
	name(m.slotsKnown, "slots")
	if c.why == notSure && m.readyKnown && m.ready < m.instances {
		t.count("; ", m.ready, " of ")
		t.count("", m.instances, " instances report")
	}
}

// mostText is how long most sentences are at most, in bytes.
const mostText = 192

// text is a sentence in the making.
type text struct{ strings.Builder }

func (t *text) add(s string) { t.WriteString(s) }

// count appends a number without decimals, its digits in groups of three, between two texts.
func (t *text) count(before string, v float64, after string) {
	t.add(before)
	var space [32]byte
	digits := strconv.AppendFloat(space[:0], math.Round(v), 'f', 0, 64)
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			t.WriteByte(',')
		}
		t.WriteByte(d)
	}
	t.add(after)
}

// rate appends a number with one decimal if it is below 10 and needs one, and with two digits if it is
// below one.
func (t *text) rate(before string, v float64, after string) {
	if v >= 9.95 {
		t.count(before, v, after)
		return
	}
	t.add(before)
	unit := 10.0
	for v > 1e-6 && v*unit < 9.95 {
		unit *= 10
	}
	var space [32]byte
	t.Write(strconv.AppendFloat(space[:0], math.Round(v*unit)/unit, 'f', -1, 64))
	t.add(after)
}

// duration appends a time in its largest fitting unit.
func (t *text) duration(before string, seconds float64, after string) {
	switch {
	case seconds < 60 || seconds < 120 && math.Mod(seconds, 60) != 0:
		t.rate(before, seconds, " s")
	case seconds < 2*3600 && math.Mod(seconds, 3600) != 0:
		t.rate(before, seconds/60, " min")
	case seconds < 48*3600:
		t.rate(before, seconds/3600, " h")
	default:
		t.rate(before, seconds/86400, " d")
	}
	t.add(after)
}
