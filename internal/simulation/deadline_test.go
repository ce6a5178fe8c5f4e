package simulation

import (
	"math"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
)

// Times of the library that are not options.
const (
	maxErrorWait     = 40 * time.Second // of a loop after errors, with its spread
	maxProbePause    = 20 * time.Second // of an outage, with its spread
	minOutage        = 16               // failures in a row that count as one
	wakeUp           = 3 * time.Second  // from a release's instant to its delivery: whole seconds, twice, and a call or two
	maxStep          = time.Second      // between two steps of a message, without faults
	maxDepthInterval = 30 * time.Second // with all open slots taken
	stuckByDefault   = time.Minute      // after the end of a handler's context
	settleByDefault  = 15 * time.Second // for a settlement
	maxHalt          = 4 * time.Second  // to notice that everything is cancelled
)

// with returns the plan after a change of settings, as Settings documents it: a zero field leaves
// its setting unchanged, and Loops.Max follows Concurrency if it was never set.
func (w workerPlan) with(s listener.Settings) workerPlan {
	if s.Concurrency > 0 {
		w.concurrency = s.Concurrency
	}
	if s.Loops.Min > 0 {
		w.loops.Min = s.Loops.Min
	}
	if s.Loops.Max > 0 {
		w.loops.Max = s.Loops.Max
	}
	if s.Idle.Max > 0 {
		w.idleMax = s.Idle.Max
	}
	return w
}

// settled returns the plan after all its changes.
func (w workerPlan) settled() workerPlan {
	for _, c := range w.changes {
		w = w.with(c.Settings)
	}
	return w
}

// minLoops is how many loops there must be. With wake-ups that may be none.
func (w workerPlan) minLoops() int {
	if w.loops.Max > 0 {
		return w.loops.Min
	}
	return min(w.loops.Min, w.concurrency)
}

// maxLoops is how many loops there may be.
func (w workerPlan) maxLoops() int {
	if w.loops.Max > 0 {
		return w.loops.Max
	}
	return max((w.concurrency+w.batch-1)/w.batch, w.minLoops())
}

// severalLoops reports whether there may ever be more than one loop.
func (w workerPlan) severalLoops() bool {
	several := w.loops.Max != 1
	for _, c := range w.changes {
		several = several || c.Loops.Max > 1
	}
	return several
}

// capacity returns how many handlers can run at once with that many loops.
func (w workerPlan) capacity(loops int) int { return min(w.concurrency, loops*w.fetched()) }

// stuck returns how long after the end of its context a handler is reported.
func (w workerPlan) stuck() time.Duration {
	if w.stuckAfter == 0 {
		return stuckByDefault
	}
	return w.stuckAfter
}

// settling returns how long settlements are tried.
func (w workerPlan) settling() time.Duration {
	if w.settle == 0 {
		return settleByDefault
	}
	return w.settle
}

// pace bounds how long workers may take, any of which may get a message.
type pace struct {
	world     *world
	capacity  int           // handlers at once
	blocked   time.Duration // until when hanging runs occupy slots
	discovery time.Duration // until a visible message is found
	lingering time.Duration // of free slots for more of them
	delay     time.Duration // longest before another attempt
	attempts  int           // MaxAttempts
	lost      int           // MaxLost
	timeout   time.Duration // the shortest; 0 for none
	company   time.Duration // until a batch begins
	together  bool          // whether there are batches
	rate      float64       // what the lowest of their limits allows a second; 0 for no limit
	adaptive  bool          // whether one of them has an adaptive limit
	longest   time.Duration // of the runs that are left to do: a batch takes as long as the longest
}

func (w *world) pace(by []*process) pace {
	c := pace{world: w}
	for _, p := range by {
		s := p.plan.settled()
		hung, until := w.hanging(p)
		c.capacity += max(s.atLowest(s.capacity(max(s.minLoops(), 1)))-hung, 0)
		c.addAdaptive(s)
		c.blocked = max(c.blocked, until)
		lingering := max(s.linger, 0)
		if s.linger == 0 { // it follows how long handlers take
			lingering = max(100*time.Millisecond, time.Duration(p.longest.Load())/5)
		}
		c.lingering = max(c.lingering, lingering)
		c.discovery = max(c.discovery, s.idleMax+s.idleMax/10)
		if s.wakes {
			c.discovery = max(c.discovery, w.plan.wakes.safety+w.plan.wakes.safety/10+s.idleMax)
		}
		c.rate = slowest(c.rate, slowest(s.limit.Requests, s.limit.Messages))
		c.delay = max(c.delay, s.maxRetryDelay)
		if s.hookPanic > 0 || s.maxRetryDelay == 0 { // then the default curve applies
			c.delay = max(c.delay, time.Duration(1.1*math.Pow(float64(s.policy.maxAttempts), 4))*time.Second)
		}
		c.attempts, c.lost = max(c.attempts, s.policy.maxAttempts), max(c.lost, s.policy.maxLost)
		if s.timeout > 0 && (c.timeout == 0 || s.timeout < c.timeout) {
			c.timeout = s.timeout
		}
		if s.together > 0 {
			c.together, c.company = true, max(c.company, s.company)
		}
	}
	if w.plan.shards.on() {
		c.capacity = w.plan.shards.sharedBy(c.capacity)
	}
	if w.plan.keys.on() { // of the slots half may be taken by jobs that wait for their keys
		c.capacity = max(c.capacity/2, 1)
	}
	c.capacity = w.plan.share(c.capacity, by)
	return c
}

// course returns how often a message may still run, and how long its runs take together.
func (c *pace) course(id queue.ID, l leftover) (runs int, long time.Duration) {
	j, n := l.job, c.world.begun(id)
	if j.form == junk || j.form == broken || j.undecoded {
		return 0, 0
	}
	head, _, _, _ := envelope.Open(readable(l.text), codec.Auto, features...)
	failing, again := max(c.attempts-head.Attempts, 0), max(j.times-n, 0)+1
	switch j.behaviour {
	case succeeds, poisons, discards:
		runs = 1
	case snoozes:
		runs = again
	case never:
		runs = failing
	case grouped:
		runs = again + failing
	default:
		runs = min(again, failing)
	}
	draw := func(k int) time.Duration {
		return c.world.plan.dice.within(j.shortest, j.longest, "run", string(id), str(n+k), "length")
	}
	most := time.Duration(0)
	for k := range runs + failing + c.lost + 1 + maxSpared {
		most = max(most, draw(k))
	}
	cut := c.timeout > 0 && c.timeout < most
	if cut || c.together { // it may fail because of its time-out, or with its batch
		runs = max(runs, failing)
		if j.behaviour == snoozes || j.behaviour == grouped {
			runs = again + failing
		}
	}
	if cut && (j.heedless || j.cleaning > 0) { // and be lost while it is stuck
		runs += c.lost + 1 + maxSpared
	}
	runs += c.exhausting(j, n)
	if n > 0 { // the last run may still be running
		long = draw(-1) + j.cleaning
	}
	for k := range runs {
		long += draw(k) + time.Duration(j.saves)*maxStep/10
		if cut {
			long += j.cleaning
		}
		if c.together {
			long += c.company + c.longest
		}
	}
	c.longest = max(c.longest, most+j.cleaning)
	return runs, long
}

// deadline is the time by which workers must have emptied the queue: soon for all messages except
// those that hang now, late for all.
type deadline struct {
	soon, late time.Duration
	hang       map[queue.ID]bool
}

func (w *world) deadline(by []*process) deadline {
	c := w.pace(by)
	left := 0
	w.remaining(by, func(id queue.ID, l leftover) { // computes c.longest
		runs, _ := c.course(id, l)
		left += runs
	})
	soon, hangs := w.now(), w.now()
	var work, chain, probes, keyed, holds time.Duration
	all := 0
	hang := make(map[queue.ID]bool)
	sourceHold := w.sourceHold(c, left)
	w.remaining(by, func(id queue.ID, l leftover) {
		runs, long := c.course(id, l)
		work += long
		all += runs + 1
		keyed += c.keyedRuns(l.job, runs, long)
		holds += time.Duration(c.exhausting(l.job, w.begun(id))) * maxHold
		chain = max(chain, long+2*maxStep+time.Duration(runs)*(2*maxStep+c.pause(l.job)+wakeUp+c.lingering+sourceHold)+c.comesAgain(l, w.begun(id)))
		probes += time.Duration(runs) * maxProbePause
		if until := w.hangsUntil(id); until > w.now() {
			hang[id] = true
			hangs = max(hangs, l.hidden, until)
		} else {
			soon = max(soon, l.hidden)
		}
	})
	if c.adaptive {
		holds += maxHold // of before
	}
	if !w.mayLookLikeAnOutage(c) {
		probes = 0
	}
	if c.capacity <= 0 { // hanging runs occupy all slots
		soon, c.capacity = max(soon, c.blocked), 1
	}
	long := w.plan.flagEnds() + maxErrorWait + maxProbePause + c.discovery + c.lingering + work/time.Duration(c.capacity) + chain + probes + keyed + holds + c.held(all, work)
	return deadline{soon + long, max(soon, hangs) + long, hang}
}

// pause returns the longest pause before another run of the job.
func (c *pace) pause(j jobPlan) time.Duration {
	switch {
	case j.behaviour != retries && j.behaviour != snoozes && j.behaviour != grouped:
		return c.delay
	case j.atOnce && c.timeout == 0 && !c.together && !c.adaptive:
		return 0
	}
	return max(c.delay, 30*time.Second)
}

// mayLookLikeAnOutage reports whether enough jobs may fail in a row.
func (w *world) mayLookLikeAnOutage(c pace) bool {
	if w.plan.outage.long > 0 || w.plan.claims.outage.long > 0 || c.timeout > 0 || c.together {
		return len(w.plan.jobs) >= minOutage
	}
	n := 0
	for _, j := range w.plan.jobs {
		switch j.behaviour {
		case fails, never, retries, panics, exits, typedNil, grouped:
			n++
		}
	}
	return n >= minOutage
}
