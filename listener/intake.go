package listener

import "time"

// interval is the work of the loops while their number was constant.
type interval struct {
	loops    int           // that ran
	intake   float64       // messages received a second
	took     time.Duration // how long the interval was
	dequeues int           // that were answered in it
	full     int           // of these, the ones that brought as many messages as they asked for: the queue may have more
	empty    int           // of these, the ones that brought none
	failed   int           // of these, the ones that failed, except those in busy
	busy     int           // of these, the ones that the service refused because it was busy
}

// controller returns how many loops should run next, given the work of those that run. Unlike a rule for
// a load it is asked again and again while they work, it may return fewer than run, and it has a state.
// One listener calls it, one call at a time, and keeps the result within its bounds.
type controller func(interval) int

// The constants of byIntake.
const (
	minGain     = 1.1  // the intake after a growth must be so many times that before, as in Temporal's poller autoscaler
	maxLoss     = 0.95 // and after a reduction at least that before times this
	longestHold = 32   // intervals for which a trial that keeps failing is not repeated, at most
	changedUp   = 1.4  // the intake of two intervals with equally many loops differs by that much only if
	changedDown = 0.7  // something else has changed
)

// byIntake returns a new controller that follows the throughput: more loops are kept only while they bring more messages.
//
// While dequeues come back full it tries half as many loops more, and keeps them if they bring at least 1.1 times as many
// messages a second; otherwise it goes back, and tries half of that the next time. Now and then it also tries a third fewer, and keeps those if they bring at
// least 0.95 times as many. So the number stays within a factor of 1.5 of the fewest loops that bring what can be had, whatever
// sets that limit: the latency of the service, its capacity, the handlers, or the messages that come. A trial that
// failed is repeated after ever more intervals, up to 32, or when the intake has changed without it.
//
// When the service is busy the controller goes back to the number before the trial, or without one halves the loops. An
// interval with another error, and one whose dequeues were mostly empty, ends one loop.
func byIntake() controller { return (&intakeController{}).next }

type intakeController struct {
	trial  direction
	before int     // loops before the trial
	tried  int     // loops in the trial
	intake float64 // messages a second before the trial, or before the first one of several reductions in a row
	held   float64 // messages a second in the last interval without a trial; 0 for none
	heldBy int     // how many loops brought them
	finer  uint    // growths that failed in a row
	up     hold
	down   hold
}

type direction int

const (
	none direction = iota
	more
	fewer
)

func (c *intakeController) next(i interval) int {
	switch {
	case i.busy > 0:
		return c.onBusy(i.loops)
	case i.failed > 0, 2*i.empty > i.dequeues:
		c.trial, c.held = none, 0
		return i.loops - 1
	}
	intake := i.intake
	switch trial := c.ended(i.loops); {
	case trial == more && intake >= minGain*c.intake:
		c.up.shorten()
		c.finer = 0
		return c.grow(i, intake)
	case trial == fewer && intake >= maxLoss*c.intake:
		c.down.shorten()
		return c.reduce(i.loops, c.intake) // not by 5 % each time
	case trial == more:
		c.failedToGrow()
		return c.before
	case trial == fewer:
		c.down.lengthen()
		return c.before
	}
	return c.begin(i, intake)
}

// ended ends the trial and returns its direction: none also if other loops than those of the trial ran, because the
// bounds did not allow it, or because loops have started or ended for other reasons.
func (c *intakeController) ended(loops int) direction {
	trial := c.trial
	c.trial = none
	if loops == c.tried {
		return trial
	}
	switch trial {
	case more:
		c.up.lengthen()
	case fewer:
		c.down.lengthen()
	}
	return none
}

// begin begins a trial, if it is time for one, after an interval without.
func (c *intakeController) begin(i interval, intake float64) int {
	if c.held > 0 && c.heldBy == i.loops && (intake > changedUp*c.held || intake < changedDown*c.held) {
		c.up, c.down, c.finer = hold{}, hold{}, 0
	}
	c.held, c.heldBy = intake, i.loops
	up, down := c.up.isOver(), c.down.isOver()
	switch {
	case up && mostlyFull(i):
		return c.grow(i, intake)
	case down:
		return c.reduce(i.loops, intake)
	}
	return i.loops
}

// grow begins a trial of more loops, if there is a reason for more.
func (c *intakeController) grow(i interval, intake float64) int {
	if !mostlyFull(i) {
		return i.loops
	}
	c.trial, c.before, c.intake = more, i.loops, intake
	c.tried = i.loops + max(i.loops>>(1+c.finer), 1)
	return c.tried
}

// reduce begins a trial of fewer loops, if there can be fewer.
func (c *intakeController) reduce(loops int, intake float64) int {
	if loops <= 1 {
		return loops
	}
	c.trial, c.before, c.intake = fewer, loops, intake
	c.tried = loops - max(loops/3, 1)
	return c.tried
}

func (c *intakeController) onBusy(loops int) int {
	c.held = 0
	if c.ended(loops) == more {
		c.failedToGrow()
		return c.before
	}
	return loops / 2
}

// failedToGrow makes the next growth come later and be half as large.
func (c *intakeController) failedToGrow() {
	c.up.lengthen()
	c.finer = min(c.finer+1, 10)
}

// mostlyFull reports whether nine of ten dequeues were full.
func mostlyFull(i interval) bool { return 10*i.full >= 9*i.dequeues }

// hold is for how many intervals a trial is not repeated. The zero value is over.
type hold struct {
	length int // after the last failure
	left   int
}

// isOver counts an interval without a trial and reports whether the hold is over.
func (h *hold) isOver() bool {
	h.left--
	return h.left < 0
}

// lengthen begins a hold, after a trial that failed.
func (h *hold) lengthen() {
	h.length = min(max(2*h.length, 1), longestHold)
	h.left = h.length
}

// shorten ends the hold, after a trial that succeeded.
func (h *hold) shorten() { *h = hold{} }
