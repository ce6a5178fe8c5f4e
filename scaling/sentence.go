package scaling

import (
	"math"
	"strconv"
)

// sentence is a decision in words, with its numbers.
func (c *choice) sentence() string {
	var space [320]byte
	t := text(space[:0])
	t.count(float64(c.from))
	if c.instances == c.from {
		t.add(": stays, ")
	} else {
		t.add(" → ")
		t.count(float64(c.instances))
		t.add(": ")
	}
	if c.why == noDepth {
		t.add("the depth is unknown")
		return string(t)
	}
	c.figures(&t)
	t.add("; ")
	c.reason(&t)
	c.missing(&t)
	return string(t)
}

// figures says what was measured.
func (c *choice) figures(t *text) {
	m := &c.now
	switch {
	case m.backlog < 0.5:
		t.add("none")
	default:
		t.count(m.backlog)
	}
	if m.backlogIsMax {
		t.add(" or fewer")
	}
	t.add(" waiting")
	if m.arrivalKnown {
		t.add(", ")
		t.rate(m.arrival)
		t.add("/s in")
		if m.later > 1.05*m.arrival {
			t.add(" rising to ")
			t.rate(m.later)
			t.add("/s")
		}
	}
	if m.serviceKnown {
		t.add(", ")
		t.rate(m.service)
		t.add("/s out")
	}
	if m.arrivalKnown && m.serviceKnown && m.backlog >= 0.5 && c.why != drainedAnyway {
		if net := m.service - m.arrival; net > 1e-9*m.arrival {
			t.add(", would drain in ")
			t.duration(m.backlog / net)
		} else {
			t.add(", would never drain")
		}
		t.add(", target ")
		t.duration(c.target)
	}
}

// reason says what the decision turned on.
func (c *choice) reason(t *text) {
	if c.why == drainedAnyway {
		t.add("full slots drain them in ")
		t.duration(c.drain)
		t.add(", target ")
		t.duration(c.target)
		return
	}
	t.count(float64(c.wanted))
	t.add(" wanted")
	switch c.why {
	case boundedByStep:
		t.add(", at most doubled in one step")
	case boundedByMax:
		t.add(", ")
		t.count(float64(c.most))
		t.add(" at most")
	case boundedByMin:
		t.add(", ")
		t.count(float64(c.least))
		t.add(" at least")
	case nearlyAsMany:
		t.add(", hardly fewer")
	case notLongEnough:
		t.add(", fewer wanted for ")
		t.duration(c.fewerFor)
		t.add(" of ")
		t.duration(c.downAfter)
	case heldByThePast:
		t.add(", ")
		t.count(float64(c.instances))
		t.add(" within ")
		t.duration(c.downAfter)
	case notSure:
		t.add(", but none is removed while figures are unknown")
	}
}

// missing names what is unknown.
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
	name(m.arrivalKnown, "arrivals")
	name(m.handlingKnown, "handling time")
	name(m.slotsKnown, "slots")
}

// text is a sentence in the making.
type text []byte

func (t *text) add(s string) { *t = append(*t, s...) }

// count appends a number without decimals, its digits in groups of three.
func (t *text) count(v float64) {
	var space [32]byte
	digits := strconv.AppendFloat(space[:0], math.Round(v), 'f', 0, 64)
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			*t = append(*t, ',')
		}
		*t = append(*t, d)
	}
}

// rate appends a number with one decimal if it is below 10 and needs one.
func (t *text) rate(v float64) {
	if v >= 9.95 {
		t.count(v)
		return
	}
	*t = strconv.AppendFloat(*t, math.Round(v*10)/10, 'f', -1, 64)
}

// duration appends a time in its largest fitting unit.
func (t *text) duration(seconds float64) {
	switch {
	case seconds < 60 || seconds < 120 && math.Mod(seconds, 60) != 0:
		t.rate(seconds)
		t.add(" s")
	case seconds < 2*3600 && math.Mod(seconds, 3600) != 0:
		t.rate(seconds / 60)
		t.add(" min")
	case seconds < 48*3600:
		t.rate(seconds / 3600)
		t.add(" h")
	default:
		t.rate(seconds / 86400)
		t.add(" d")
	}
}
