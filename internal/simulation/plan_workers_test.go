package simulation

import (
	"slices"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/limits"
)

// ending is how a worker process ends.
type ending string

const (
	stopped ending = "stopped" // its context ends
	halted  ending = "halted"  // its context ends, and it is halted at once
	hurried ending = "hurried" // stopped, and halted while it drains
	killed  ending = "killed"  // no call after that instant
)

// workerPlan is one worker process.
type workerPlan struct {
	name       string
	start, end time.Duration
	survives   bool // continues after the horizon and must empty the queue
	ending     ending
	hurry      time.Duration // from the stop to the halt
	faults     faultqueue.Options
	release    int      // 2 for one that reads envelopes of the next version
	kinds      []string // that it handles, beside jobs without a kind

	policy             policyPlan
	concurrency, batch int
	least              int
	linger             time.Duration
	loops              listener.Loops
	idleMin, idleMax   time.Duration
	hook               bool // QueueEmpty in place of a curve
	wakes              bool
	visibility         dispatcher.Visibility
	timeout, grace     time.Duration
	settle             time.Duration
	stuckAfter         time.Duration
	giveUp             bool
	maxRetryDelay      time.Duration // 0 for the usual curve

	together  int           // messages in a batch of its handler; 0 for one at a time
	company   time.Duration // how long the first waits for others
	each      int           // items of a group at once
	hookPanic float64       // share of the calls of its hooks that panic
	changes   []change
	pauses    []span // by its program
	frozen    span   // the time in which it is stopped, as by SIGSTOP
	member    memberPlan
	limit     limits.ProcessOptions // 0 for none
	adaptive  adaptivePlan
}

// change is one of settings while the worker runs.
type change struct {
	at time.Duration // since its start
	listener.Settings
}

func (p *plan) worker(i int) workerPlan {
	d, about := p.dice, "worker "+str(i)
	w := workerPlan{
		name:          about,
		start:         d.within(0, p.horizon*2/3, about, "start"),
		ending:        pick(d, []ending{stopped, stopped, halted, hurried, killed, killed}, about, "ending"),
		hurry:         d.within(time.Millisecond, 20*time.Second, about, "hurry"),
		faults:        p.faults(about),
		policy:        p.policy,
		concurrency:   d.number(1, 20, about, "concurrency"),
		batch:         d.number(1, 12, about, "batch"),
		linger:        pick(d, []time.Duration{0, -1, 50 * time.Millisecond, 2 * time.Second}, about, "linger"),
		idleMin:       d.within(50*time.Millisecond, time.Second, about, "idle min"),
		hook:          p.hooked && d.chance(0.7, about, "hook"),
		grace:         d.within(time.Millisecond, time.Minute, about, "grace"),
		maxRetryDelay: d.steep(100*time.Millisecond, time.Minute, about, "retry delay"),
	}
	w.end = min(w.start+d.within(time.Second, p.horizon, about, "end"), p.horizon+d.within(0, time.Second, about, "after the horizon"))
	if p.outage.long > 0 { // enough first attempts fail in a row
		w.concurrency = d.number(10, 20, about, "concurrency")
	}
	if d.chance(0.25, about, "other policy") {
		bare := p.policy.bare
		w.policy = p.bounds(about)
		w.policy.bare = bare && d.chance(0.5, about, "bare")
	}
	if d.chance(0.2, about, "next release") {
		w.release = 2
	}
	if d.chance(0.3, about, "ungraceful") {
		w.grace = -1
	}
	if d.chance(0.5, about, "least") {
		w.least = d.number(1, w.concurrency, about, "least fetch")
	}
	w.idleMax = w.idleMin + d.steep(500*time.Millisecond, 30*time.Second, about, "idle max")
	if d.chance(0.1, about, "patient") { // only wake-ups end a wait sooner
		w.idleMax = 10 * time.Minute
	}
	if p.manyLoops {
		w.loops.Min = d.number(1, 3, about, "least loops")
		w.loops.Pause = d.within(time.Millisecond, 30*time.Second, about, "pause")
		if !d.chance(0.3, about, "loops follow") {
			w.loops.Max = w.loops.Min + d.number(0, 4, about, "more loops")
		}
	} else {
		w.loops = listener.Loops{Min: 1, Max: 1}
	}
	if w.wakes = p.wakes.on; w.wakes && !d.chance(0.1, about, "least loops with wake-ups") {
		w.loops.Min = 0
	}
	p.time(&w)
	p.misbehave(&w)
	if w.together > 0 { // at the same instant, a batch could begin before or after its context ends
		w.grace = max(w.grace, time.Millisecond)
		if w.ending == halted {
			w.ending, w.hurry = hurried, time.Microsecond
		}
	}
	for n := range d.number(0, 3, about, "changes") {
		if change, ok := p.change(w, n); ok && d.chance(0.5, about, "changing") {
			w.changes = append(w.changes, change)
		}
	}
	w.pauses = p.programPauses(about)
	slices.SortFunc(w.changes, func(a, b change) int { return int(a.at - b.at) })
	return w
}

// time draws how long a worker gives messages, handlers and settlements.
func (p *plan) time(w *workerPlan) {
	d, about := p.dice, w.name
	if p.ordinary {
		return
	}
	w.settle = d.within(2*time.Second, 30*time.Second, about, "settle")
	w.stuckAfter = pick(d, []time.Duration{0, -1, d.within(time.Second, time.Minute, about, "stuck")}, about, "stuck after")
	w.giveUp = d.chance(0.4, about, "gives up")
	if d.chance(0.5, about, "fixed") {
		w.visibility = dispatcher.FixedVisibility(d.within(5*time.Second, 40*time.Second, about, "visibility"))
	} else {
		w.visibility = dispatcher.Visibility{
			First: d.within(5*time.Second, 40*time.Second, about, "first"),
			Min:   d.within(5*time.Second, 12*time.Second, about, "min"),
			Max:   d.within(12*time.Second, 2*time.Minute, about, "max"),
		}
	}
	if d.chance(0.3, about, "timed") {
		w.timeout = d.within(time.Second, 90*time.Second, about, "timeout")
	}
}

// misbehave draws the behaviour of the worker's user code.
func (p *plan) misbehave(w *workerPlan) {
	d, about := p.dice, w.name
	rare := 1.0
	if p.ordinary { // most of these do not make healthy jobs fail
		rare = 0.1
	}
	if d.chance(0.3*rare, about, "together") {
		w.together = d.number(1, 8, about, "how many together")
		w.company = d.steep(10*time.Millisecond, time.Minute, about, "company")
	}
	if d.chance(0.3, about, "hooks panic") {
		w.hookPanic = d.unit(about, "how often hooks panic") * 0.3
	}
}

// change draws a change of settings. The settings at the start decide what may change.
func (p *plan) change(w workerPlan, n int) (change, bool) {
	d, about := p.dice, w.name+" change "+str(n)
	c := change{at: d.within(time.Second, p.horizon/2, about, "at")}
	if w.start+c.at >= min(w.end, p.horizon) {
		return c, false
	}
	switch d.number(0, 2, about, "what") {
	case 0:
		c.Concurrency = d.number(1, 20, about, "concurrency")
		if p.outage.long > 0 {
			c.Concurrency = d.number(10, 20, about, "concurrency")
		}
	case 1:
		if w.loops.Max == 0 || !p.manyLoops {
			return c, false
		}
		c.Loops.Min = d.number(1, 3, about, "least loops")
		c.Loops.Max = c.Loops.Min + d.number(0, 4, about, "more loops")
	default:
		if w.hook {
			return c, false
		}
		c.Idle.Min = d.within(50*time.Millisecond, time.Second, about, "idle min")
		c.Idle.Max = c.Idle.Min + d.steep(500*time.Millisecond, 30*time.Second, about, "idle max")
	}
	return c, true
}
