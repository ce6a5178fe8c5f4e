package slots

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/retry"
)

// backOff is what a failure multiplies the limit by.
const backOff = 0.9

// rule is additive increase, multiplicative decrease, as in TCP's congestion avoidance and Netflix's concurrency-limits. The
// lock of the limit guards it.
type rule struct {
	exact    float64 // the limit before it is rounded down
	credit   int     // successes since the last change
	starting bool    // nothing has failed yet: each success counts like a limit's worth
	cutAt    int64   // handlers that had begun when the limit was last cut
}

// succeeded counts a success. Successes while less than half of the limit is used say nothing about more. Requires mu.
func (l *Adaptive) succeeded(used bool) {
	if !used || l.memory.forbidsGrowth() {
		return
	}
	if l.rule.credit++; l.rule.credit >= l.limit() || l.rule.starting {
		l.set(l.rule.exact+1, change{why: grown})
	}
}

// cut shrinks the limit after a failure, unless it was cut after the handler began: then both failures are of one moment.
// At its lowest the limit holds back for a while. Requires mu.
func (l *Adaptive) cut(c call, said verdict, d *dispatcher.Delivery, err error) {
	if c.number <= l.rule.cutAt {
		return
	}
	l.rule.cutAt, l.rule.starting = l.begun, false
	if said == exhausted && l.limit() <= l.options.Min {
		l.beginHold(d, err)
		return
	}
	why := afterTimeout
	if said == exhausted {
		why = afterExhausted
	}
	l.set(float64(l.limit())*backOff, change{why: why, err: err})
}

// set changes the limit, within its bounds. Requires mu.
func (l *Adaptive) set(exact float64, c change) {
	l.rule.exact = min(max(exact, float64(l.options.Min)), float64(l.options.Max))
	l.rule.credit = 0
	c.at, c.from, c.to = time.Now(), l.limit(), int(l.rule.exact)
	if c.from == c.to {
		return
	}
	l.current.Store(int64(c.to))
	l.last = c
	l.resize()
}

// resize makes as many slots as the limit is. Requires mu.
func (l *Adaptive) resize() {
	if err := l.shared.Resize(max(l.limit(), 1)); err != nil {
		panic("slots: " + err.Error()) // members reserve none
	}
}

// While the limit is at its lowest and the dependency is exhausted nevertheless, no handler starts for a time that doubles within
// these bounds. Handlers that fail at once would otherwise send their messages around as fast as the queue can.
const (
	firstHold = time.Second
	maxHold   = 15 * time.Second
)

// hold is the state of holding back. The lock of the limit guards it.
type hold struct {
	waits *retry.Waits // nil before the first
	timer *time.Timer  // wakes the listeners; nil before the first
}

// beginHold begins to hold back. Requires mu.
func (l *Adaptive) beginHold(d *dispatcher.Delivery, err error) {
	h := &l.hold
	if h.waits == nil {
		h.waits = retry.NewWaits("adaptive/"+string(d.ID), firstHold, maxHold) // not in step with other processes
	}
	wait := h.waits.Next()
	l.heldUntil.Store(int64(time.Since(l.made) + wait))
	l.last = change{why: held, at: time.Now(), from: l.limit(), to: l.limit(), wait: wait, err: err}
	if h.timer == nil {
		h.timer = time.AfterFunc(wait, l.wakeUsers)
	} else {
		h.timer.Reset(wait)
	}
}

// endHold ends it after a success. Requires mu.
func (l *Adaptive) endHold() {
	if l.hold.waits != nil {
		l.hold.waits.Reset()
	}
	if l.isHeld() {
		l.heldUntil.Store(0)
		l.hold.timer.Stop()
		l.tellUsers()
	}
}

// isHeld reports whether no slots are given.
func (l *Adaptive) isHeld() bool {
	until := l.heldUntil.Load()
	return until > 0 && time.Since(l.made) < time.Duration(until)
}

// The constants of the gradient. Tolerance, smoothing and the room for a queue are those of Gradient2 in Netflix's
// concurrency-limits.
const (
	tolerance    = 1.5 // times as long as at half the limit is no sign of overload
	smoothing    = 0.2 // the weight of a new limit
	queueRoom    = 4   // handlers by which the limit grows while nothing speaks against it, before smoothing
	leastSamples = 20  // in a window
	probeEvery   = 30  // windows
	maxKinds     = 100 // whose durations are known
)

// gradient follows how long handlers take. Gradient2 compares them with their average over a long time. With a
// queue that is never empty that average rises with the overload itself, and the limit with it. So the limit is halved for
// one window in probeEvery, and what handlers take then is what they are compared with. The lock of the limit guards it.
type gradient struct {
	kinds   map[string]*durations
	samples int   // in this window
	most    int   // handlers that ran at once in it
	since   int64 // calls up to this one do not count: they began under another limit
	windows int   // since the last probe
	probing bool
	resume  float64 // the limit before the probe
}

// durations are those of the handlers of one kind, in seconds.
type durations struct {
	base  float64 // mean in the last probe; in the first window until there was one; 0 if unknown
	sum   float64 // in this window
	count int
}

// sample counts the duration of a handler, and changes the limit at the end of a window. Requires mu.
func (l *Adaptive) sample(c call, kind string, took time.Duration) {
	g := &l.gradient
	if c.number <= g.since {
		return
	}
	d := g.of(kind)
	d.sum += took.Seconds()
	d.count++
	if g.samples++; g.samples < max(2*l.limit(), leastSamples) {
		return
	}
	switch g.windows++; {
	case g.probing:
		g.rebase(true)
		l.endProbe()
	case g.windows >= probeEvery || g.windows == 1 && g.resume == 0:
		g.rebase(false)
		l.beginProbe()
	default:
		g.rebase(false)
		l.follow(g.slope())
	}
	g.next()
}

// of returns the durations of a kind. Kinds beyond maxKinds are one.
func (g *gradient) of(kind string) *durations {
	if g.kinds == nil {
		g.kinds = make(map[string]*durations)
	}
	d := g.kinds[kind]
	if d == nil && len(g.kinds) >= maxKinds {
		kind = ""
		d = g.kinds[kind]
	}
	if d == nil {
		d = &durations{}
		g.kinds[kind] = d
	}
	return d
}

func (d *durations) mean() float64 { return d.sum / float64(d.count) }

// next begins a window.
func (g *gradient) next() {
	g.samples, g.most = 0, 0
	for _, d := range g.kinds {
		d.sum, d.count = 0, 0
	}
}

// rebase takes what handlers took in this window for what they take without overload: all after a
// probe, otherwise those of kinds that no probe has seen.
func (g *gradient) rebase(all bool) {
	for _, d := range g.kinds {
		if d.count > 0 && (all || d.base == 0) {
			d.base = d.mean()
		}
	}
}

// slope returns how many times as long as without overload handlers have taken in this window, on average of the kinds.
func (g *gradient) slope() float64 {
	sum, count := 0.0, 0
	for _, d := range g.kinds {
		if d.count > 0 && d.base > 0 {
			sum += float64(d.count) * d.mean() / d.base
			count += d.count
		}
	}
	if count == 0 {
		return 1
	}
	return sum / float64(count)
}

// follow changes the limit after a window without a probe: L' = 0.8·L + 0.2·(g·L + 4) with g = 1.5 / slope, within 0.5…1.
// Requires mu.
func (l *Adaptive) follow(slope float64) {
	exact := l.rule.exact
	g := min(max(tolerance/slope, 0.5), 1)
	next := (1-smoothing)*exact + smoothing*(g*exact+queueRoom)
	if next > exact && (2*l.gradient.most < l.limit() || l.memory.forbidsGrowth()) {
		return // so few say nothing about more
	}
	why := afterFast
	if next < exact {
		why = afterSlow
	}
	l.set(next, change{why: why, slope: slope})
}

// beginProbe halves the limit for one window. Requires mu.
func (l *Adaptive) beginProbe() {
	g := &l.gradient
	g.probing, g.resume, g.windows = true, l.rule.exact, 0
	l.set(l.rule.exact/2, change{why: forProbe})
	g.since = l.begun
}

// endProbe ends the probe: the limit is what it was, unless it has shrunk meanwhile for another reason. Requires mu.
func (l *Adaptive) endProbe() {
	g := &l.gradient
	g.probing = false
	if l.rule.exact*2 >= g.resume-1 && !l.memory.forbidsGrowth() {
		l.set(g.resume, change{why: probed})
	}
	g.since = l.begun
}

// AdaptiveCounts are how many handlers ended how, since the limit was made. A handler counts once.
type AdaptiveCounts struct {
	Coped     int64 // succeeded, or rejected or discarded the job: the dependency has answered
	Exhausted int64 // said that the dependency is exhausted
	TimedOut  int64 // took longer than their time-out
	Other     int64 // failed for other reasons, snoozed, panicked, or were interrupted: they say nothing
}

// AdaptiveState describes a limit at one moment.
type AdaptiveState struct {
	Limit   int // how many handlers may run
	Min     int // the lowest that it gets
	Max     int // the highest
	Running int // handlers that run, those included that were given up as stuck
	Held    int // slots that are taken: for these handlers, and for dequeues that have brought no message yet

	Changed time.Time // when the limit last changed or held back; when it was made if it never did
	Why     string    // what that change was and its reason, in a sentence
	Waits   bool      // no handler starts for a moment: the dependency is exhausted at the lowest limit

	Memory Memory // as last read; zero if it is unknown
	Err    error  `json:"-"` // the last failure of Options.Memory, or of another function in the options; nil for none

	Counts AdaptiveCounts
}

// String returns the limit, what is in use, and the last change with its reason, in a line.
func (s AdaptiveState) String() string {
	return fmt.Sprintf("at most %d handlers, %d run; %s", s.Limit, s.Running, s.Why)
}

// State returns what the limit is and why.
func (l *Adaptive) State() AdaptiveState {
	held := l.shared.State().Held
	l.mu.Lock()
	defer l.mu.Unlock()
	return AdaptiveState{
		Limit: l.limit(), Min: l.options.Min, Max: l.options.Max, Running: l.running, Held: held,
		Changed: l.last.at, Why: l.last.String(), Waits: l.isHeld(), Memory: l.memory.Memory, Err: l.failure, Counts: l.counts,
	}
}

// reason is why the limit has changed.
type reason int

const (
	unchanged reason = iota
	grown
	afterExhausted
	afterTimeout
	afterMemory
	afterFast
	afterSlow
	forProbe
	probed
	held
)

// change is the last change. Its sentence is made when somebody asks.
type change struct {
	why      reason
	at       time.Time
	from, to int
	err      error
	memory   Memory
	slope    float64
	wait     time.Duration
}

// String returns the sentence.
func (c change) String() string {
	step := fmt.Sprintf("%d → %d: ", c.from, c.to)
	switch c.why {
	case grown:
		return step + "handlers succeeded while the limit was used"
	case afterExhausted:
		return step + shortened(c.err)
	case afterTimeout:
		return step + "a handler took longer than its time-out"
	case afterMemory:
		return step + fmt.Sprintf("%s of %s memory are in use, %.0f %%, and at most %.0f %% may be",
			inMiB(c.memory.Used), inMiB(c.memory.Limit), 100*float64(c.memory.Used)/float64(c.memory.Limit), 100*highMemory)
	case afterFast:
		return step + fmt.Sprintf("handlers take %.1f times as long as at half the limit, and up to %.1f times is no overload", c.slope, tolerance)
	case afterSlow:
		return step + fmt.Sprintf("handlers take %.1f times as long as at half the limit, more than %.1f times", c.slope, tolerance)
	case forProbe:
		return step + "half the limit for a moment, to see how long handlers take then"
	case probed:
		return step + "it is known how long handlers take at half the limit"
	case held:
		return fmt.Sprintf("%d, the lowest, and none starts for %v: %s", c.to, c.wait.Round(100*time.Millisecond), shortened(c.err))
	}
	return fmt.Sprintf("%d since the start", c.to)
}

// shortened returns the beginning of an error's text.
func shortened(err error) string {
	const most = 200
	text := fmt.Sprint(err)
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}

func inMiB(bytes int64) string { return fmt.Sprintf("%.0f MiB", float64(bytes)/(1<<20)) }

// failed remembers that a function in the options has failed.
func (l *Adaptive) failed(name string, f *hook.Failure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failure = fmt.Errorf("the option %s of an adaptive limit panicked: %v", name, f.Value)
}
