package scaling

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/units"
)

// Policy decides how many instances a pool should have. The zero value is the default. It may be
// copied; its methods are pure and safe for concurrent use.
type Policy struct {
	// Min is how many instances there are at least. 0 means 1, or with ToZero none. Defaults to 1.
	Min int

	// ToZero lets the last instance go too. Something must start one when work comes: the agent,
	// which then reads the depth. It excludes Min. Defaults to false.
	ToZero bool

	// Max is how many instances there are at most. Defaults to 20, or to Min if that is more.
	Max int

	// Target is in what time a backlog should be gone. Defaults to 1 min.
	Target time.Duration

	// Wait is how long messages may wait on purpose, so that fewer instances with full slots are
	// enough: a backlog of that time's arrivals calls for no more of them, and while it is shorter,
	// fewer are wanted. It should be well below the time that jobs have, less Start. Defaults to none:
	// messages are to begin at once.
	Wait time.Duration

	// Utilization is how much of the slots the load may use, above 0 and at most 1; the rest is for
	// sudden growth. Defaults to 0.8.
	Utilization float64

	// Spare is how many instances there are beside what the load calls for. Defaults to none.
	Spare int

	// Start is how long an instance takes from being asked for to its first job. Defaults to 30 s.
	Start time.Duration

	// DownAfter is how long fewer instances must have been enough before some are removed. Defaults
	// to 5 min.
	DownAfter time.Duration

	// Slots is how many handlers one instance runs at once, while no instance says so. Defaults to
	// 64, which counts as a guess: with guesses, instances are removed only if the queues were empty.
	Slots int

	// Handling is how long a message occupies a slot, while no instance says so. Defaults to 1 s,
	// which counts as a guess: see Slots.
	Handling time.Duration

	// CPU is how much of their processor time instances may use on average, above 0 and at most 1. If they
	// use more, as many are wanted as would use that much: ⌈instances × use / CPU⌉, as the Horizontal Pod
	// Autoscaler computes it, of the last minute. Where the load calls for more, that counts. It needs
	// reports: while the use is unknown, instances are removed only if the queues were empty. Defaults to 0,
	// which means no bound.
	CPU float64

	// Memory is how much of the memory that they may have instances may use on average, above 0 and at most
	// 1, in the same way. Because a part of the memory does not become less with more instances, it calls
	// for twice as many as the load at most. Defaults to 0, which means no bound.
	Memory float64

	// Forecast makes the policy look at the same time a day and a week ago, while that was a better
	// forecast than the latest figures. Defaults to false.
	Forecast bool
}

// Decision is what a [Policy] decided. It may be copied.
type Decision struct {
	// At is the time of the newest sample; zero if there was none.
	At time.Time `json:"at"`

	// From is how many instances there were, and Instances how many there should be.
	From      int `json:"from"`
	Instances int `json:"instances"`

	// Wanted is how many the load calls for, spare ones included, regardless of bounds, steps and
	// windows. It is From if it cannot be told.
	Wanted int `json:"wanted"`

	// Why is the decision in a sentence, with its numbers.
	Why string `json:"why"`
}

// What the zero values of a policy's fields mean.
const (
	defaultMin         = 1
	defaultMax         = 20
	defaultTarget      = time.Minute
	defaultUtilization = 0.8
	defaultStart       = 30 * time.Second
	defaultDownAfter   = 5 * time.Minute
	defaultSlots       = 64
	defaultHandling    = time.Second
)

// Check returns everything that is wrong with the policy, or nil. Decide takes the default for a
// field that is wrong.
func (p Policy) Check() error {
	var wrong []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			wrong = append(wrong, fmt.Errorf("scaling policy: "+format, args...))
		}
	}
	refuse(p.Min < 0, "Min is %d: it must not be negative", p.Min)
	refuse(p.Max < 0, "Max is %d: it must not be negative", p.Max)
	refuse(p.Max > 0 && p.Min > p.Max, "Min is %d and Max %d: Min must not exceed Max", p.Min, p.Max)
	refuse(p.ToZero && p.Min > 0, "Min is %d with ToZero: leave out one of them", p.Min)
	refuse(p.Target < 0, "Target is %v: it must not be negative", p.Target)
	refuse(p.Wait < 0, "Wait is %v: it must not be negative", p.Wait)
	refuse(p.Utilization != 0 && !validUtilization(p.Utilization),
		"Utilization is %v: it must be above 0 and at most 1", p.Utilization)
	refuse(p.CPU != 0 && !validUtilization(p.CPU), "CPU is %v: it must be above 0 and at most 1", p.CPU)
	refuse(p.Memory != 0 && !validUtilization(p.Memory), "Memory is %v: it must be above 0 and at most 1", p.Memory)
	refuse(p.Spare < 0, "Spare is %d: it must not be negative", p.Spare)
	refuse(p.Start < 0, "Start is %v: it must not be negative", p.Start)
	refuse(p.DownAfter < 0, "DownAfter is %v: it must not be negative", p.DownAfter)
	refuse(p.Slots < 0, "Slots is %d: it must not be negative", p.Slots)
	refuse(p.Handling < 0, "Handling is %v: it must not be negative", p.Handling)
	for _, err := range []error{units.Wait("Target", p.Target), units.Wait("Wait", p.Wait), units.Wait("Start", p.Start),
		units.Wait("DownAfter", p.DownAfter), units.Wait("Handling", p.Handling)} {
		refuse(err != nil, "%w", err)
	}
	return errors.Join(wrong...)
}

func validUtilization(u float64) bool { return u > 0 && u <= 1 }

// rules are a policy with its defaults filled in.
type rules struct {
	least, most, spare                 int
	target, start, downAfter, handling float64 // seconds
	wait                               float64 // seconds
	utilization, slots                 float64
	cpu, memory                        float64 // shares that may be used; 0 means no bound
	guessedSlots, guessedHandling      bool    // nobody said how many or how long
	forecast                           bool
}

// WithDefaults returns the policy with defaults in place of fields that are zero or wrong, except Slots and Handling,
// where zero says that nobody knows.
func (p Policy) WithDefaults() Policy {
	p.Min, p.Spare, p.Wait = max(p.Min, 0), max(p.Spare, 0), max(p.Wait, 0)
	if p.Min == 0 && !p.ToZero {
		p.Min = defaultMin
	}
	if p.Max <= 0 {
		p.Max = defaultMax
	}
	p.Max = max(p.Max, p.Min)
	if !validUtilization(p.Utilization) {
		p.Utilization = defaultUtilization
	}
	if !validUtilization(p.CPU) {
		p.CPU = 0
	}
	if !validUtilization(p.Memory) {
		p.Memory = 0
	}
	p.Target = positive(p.Target, defaultTarget)
	p.Start = positive(p.Start, defaultStart)
	p.DownAfter = positive(p.DownAfter, defaultDownAfter)
	p.Slots, p.Handling = max(p.Slots, 0), max(p.Handling, 0)
	return p
}

// positive returns d, or the default if d is not above zero.
func positive(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}

func (p *Policy) rules() rules {
	d := p.WithDefaults()
	return rules{
		least: d.Min, most: d.Max, spare: d.Spare,
		target: d.Target.Seconds(), start: d.Start.Seconds(), downAfter: d.DownAfter.Seconds(), wait: d.Wait.Seconds(),
		handling:    positive(d.Handling, defaultHandling).Seconds(),
		utilization: d.Utilization, slots: float64(cmp.Or(d.Slots, defaultSlots)),
		cpu: d.CPU, memory: d.Memory,
		guessedSlots: d.Slots == 0, guessedHandling: d.Handling == 0,
		forecast: d.Forecast,
	}
}

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
		if net := m.service - m.arrival; net > 1e-9*m.arrival && m.backlog < net*mostDrain {
			t.duration(", would drain in ", m.backlog/net, "")
		} else {
			t.add(", would not drain")
		}
		t.duration(", target ", c.target, "")
	}
}

func (c *choice) reason(t *text) {
	t.count("", float64(c.wanted), " wanted")
	c.because(t)
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
		switch {
		case c.instances > c.step():
			t.count(", ", float64(c.instances), " at the sample before")
		case c.from < stepLeast:
			t.add(", at most 4 more in one step")
		default:
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

// missing names the figures that are unknown and would matter. Nothing does of empty queues. Arrivals do only if instances
// report: otherwise they are always an estimate, which stops nothing.
func (c *choice) missing(t *text) {
	m := &c.now
	if m.depthKnown && m.depth == 0 {
		return
	}
	separator := "; unknown: "
	name := func(known bool, what string) {
		if !known {
			t.add(separator)
			t.add(what)
			separator = ", "
		}
	}
	name(m.depthKnown, "depth")
	name(m.arrivalKnown || !m.readyKnown && !m.serviceKnown, "arrivals")
	name(m.handlingKnown, "handling time")
	name(m.slotsKnown, "slots")
	name(c.cpu == 0 || m.cpu.known, "CPU")
	name(c.memory == 0 || m.memory.known, "memory")
	if c.why == notSure && m.readyKnown && m.ready < m.instances {
		t.count("; ", m.ready, " of ")
		t.count("", m.instances, " instances report")
	}
}

// mostDrain is how many seconds a backlog may take before it counts as one that would not drain.
const mostDrain = 365 * 86400

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
