package scaling

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/millrace/millrace/internal/load"
)

// Load is what one instance knows of its load. A rule for loops gets it, a listener's state has it,
// and an instance reports it. It may be copied. Its JSON form has the names in lower case, with
// underscores. The fields:
//
//   - Depth: the approximate number of messages in the queue, including those being handled.
//   - Loops: the number of loops running.
//   - Running: the number of handlers running.
//   - Settling: the number of settlements in progress.
//   - Slots: how many handlers may run at once. With shared slots, how many there are for all.
//   - BatchSize: how many messages one loop takes at most in one dequeue.
//   - Arrival: how many messages a second come to the queue, as far as this instance can tell: the
//     growth between its readings of the depth, and the messages that it took off the queue
//     meanwhile. Messages that others took off are missing. It is the mean since the youngest reading
//     that is 30 s older than the newest, or since the oldest of the last 5 min. A reading that fails
//     changes nothing. It is unknown until the depth was read twice in 5 min, a second apart. It is
//     unknown while the newest reading is more than a minute old, such as when the queue is empty or
//     no more loops may start, and while others take off more than comes.
//   - Intake: how many messages a second this instance has received in the last 30 s, or since its
//     start. Unknown in its first second.
//   - Service: how many messages a second this instance has taken off the queue in the same time:
//     deleted, or moved to the poison queue. Unknown in its first second.
//   - Handling: how long a handler took, on average of those that returned in the same time, or of
//     the latest ones if none did. Unknown until one has returned.
type Load = load.Load

// Loops returns how many loops a load calls for. The listener keeps the result within its
// bounds. It is called concurrently and should not block.
type Loops func(Load) int

// PerBatch is the default rule: as many loops as take the whole depth in one dequeue each,
// ceil(Depth / BatchSize), and at least one.
func PerBatch(l Load) int {
	if l.Depth <= 0 || l.BatchSize <= 0 {
		return 1
	}
	// Clamped before the conversion: a depth may exceed an int.
	loops := (l.Depth-1)/int64(l.BatchSize) + 1
	return int(min(loops, 1<<30))
}

// Step is one row of a [Table].
type Step struct {
	Below int64 // the row applies below this depth
	Loops int   // loops for this row
}

// Table returns a rule that looks up the depth: the row with the smallest Below above the depth
// applies, or otherwise if there is none. An empty queue gets one loop. The steps may be in any
// order.
func Table(otherwise int, steps ...Step) Loops {
	steps = slices.SortedFunc(slices.Values(steps), func(a, b Step) int { return cmp.Compare(a.Below, b.Below) })
	return func(l Load) int {
		if l.Depth <= 0 {
			return 1
		}
		for _, s := range steps {
			if l.Depth < s.Below {
				return s.Loops
			}
		}
		return otherwise
	}
}

// Stepped returns a sample rule: under 100 messages ten loops, under 1,000 fifty, and a hundred
// above.
func Stepped() Loops {
	return Table(100, Step{Below: 100, Loops: 10}, Step{Below: 1000, Loops: 50})
}

// deltaBackoff and its jitter are constants of the formula.
const (
	deltaBackoff = 100.0 // milliseconds
	jitterLow    = 0.8
	jitterHigh   = 1.2
)

// Curve returns how long a loop waits after its k-th empty poll in a row by default: min(minWait +
// int((2^k − 1) × r) ms, maxWait), where r is a random integer in 80…119. Negative bounds count as
// zero. Random(n) returns a number in [0, n), as rand.IntN does, so that a run can be repeated. Curve
// is safe for concurrent use if random is.
func Curve(minWait, maxWait time.Duration, k int, random func(n int) int) time.Duration {
	r := jitterLow*deltaBackoff + float64(random(int((jitterHigh-jitterLow)*deltaBackoff)))
	return interval(max(minWait, 0), max(maxWait, 0), k, r)
}

// interval clamps in floating point, before it converts: from the 25th empty poll on, 2^k × r
// exceeds 32 bits, and later the 64 bits of a Duration, and the wait would become negative.
func interval(minWait, maxWait time.Duration, empty int, r float64) time.Duration {
	delta := math.Trunc((math.Exp2(float64(empty)) - 1) * r)
	if d := delta * float64(time.Millisecond); d < float64(maxWait-minWait) {
		return minWait + time.Duration(d)
	}
	return maxWait
}

// Interval is what the loops of a listener did while their number was constant. It is the input of a
// [Controller]. It may be copied.
type Interval struct {
	// Load is the load at the end of the interval. Its Intake is that of the interval: messages received a second.
	// Its Depth may be old, because reading it costs a request.
	Load

	Took     time.Duration // how long the interval was
	Dequeues int           // dequeues that were answered in it
	Full     int           // of these, how many brought as many messages as they asked for: the queue may have more
	Empty    int           // of these, how many brought none
	Failed   int           // of these, how many failed, but for those in Busy
	Busy     int           // of these, how many the service refused because it was busy
}

// Controller returns how many loops should run next, given what those that run have done. Unlike a [Loops] rule it is asked
// again and again while they work, it may return fewer than run, and it may have a state. One listener calls it, one call at
// a time. The listener keeps the result within its bounds.
type Controller func(Interval) int

// The constants of [ByIntake].
const (
	minGain     = 1.1  // the intake after a growth must be so many times that before, as in Temporal's poller autoscaler
	maxLoss     = 0.95 // and after a reduction at least that before times this
	longestHold = 32   // intervals for which a trial that keeps failing is not repeated, at most
	changedUp   = 1.4  // the intake of two intervals with equally many loops differs by that much only if
	changedDown = 0.7  // something else has changed
)

// ByIntake returns a new controller that follows the throughput: more loops are kept only while they bring more messages.
//
// While dequeues come back full it tries half as many loops more, and keeps them if they bring at least 1.1 times as many
// messages a second; otherwise it goes back, and tries half of that the next time. Now and then it also tries a third fewer, and keeps those if they bring at
// least 0.95 times as many. So the number stays within a factor of 1.5 of the fewest loops that bring what can be had, whatever
// sets that limit: the latency of the service, its capacity, the handlers, or the messages that come. A trial that
// failed is repeated after ever more intervals, up to 32, or when the intake has changed without it.
//
// When the service is busy the controller goes back to the number before the trial, or without one halves the loops. An
// interval with another error, and one whose dequeues were mostly empty, ends one loop.
func ByIntake() Controller { return (&intakeController{}).next }

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

func (c *intakeController) next(i Interval) int {
	switch {
	case i.Busy > 0:
		return c.onBusy(i.Loops)
	case i.Failed > 0, 2*i.Empty > i.Dequeues:
		c.trial, c.held = none, 0
		return i.Loops - 1
	}
	intake := i.Intake.Or(0)
	switch trial := c.ended(i.Loops); {
	case trial == more && intake >= minGain*c.intake:
		c.up.shorten()
		c.finer = 0
		return c.grow(i, intake)
	case trial == fewer && intake >= maxLoss*c.intake:
		c.down.shorten()
		return c.reduce(i.Loops, c.intake) // not by 5 % each time
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
func (c *intakeController) begin(i Interval, intake float64) int {
	if c.held > 0 && c.heldBy == i.Loops && (intake > changedUp*c.held || intake < changedDown*c.held) {
		c.up, c.down, c.finer = hold{}, hold{}, 0
	}
	c.held, c.heldBy = intake, i.Loops
	up, down := c.up.isOver(), c.down.isOver()
	switch {
	case up && mostlyFull(i):
		return c.grow(i, intake)
	case down:
		return c.reduce(i.Loops, intake)
	}
	return i.Loops
}

// grow begins a trial of more loops, if there is a reason for more.
func (c *intakeController) grow(i Interval, intake float64) int {
	if !mostlyFull(i) {
		return i.Loops
	}
	c.trial, c.before, c.intake = more, i.Loops, intake
	c.tried = i.Loops + max(i.Loops>>(1+c.finer), 1)
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
func mostlyFull(i Interval) bool { return 10*i.Full >= 9*i.Dequeues }

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
