package simulation

import (
	"time"

	"github.com/millrace/millrace/queue/faultqueue"
)

// plan has everything that a seed decides before its world begins.
type plan struct {
	dice      dice
	way       way  // how processes reach the engine
	faultless bool // neither faults nor deaths: the audit is exact
	ordinary  bool // bounds, visibility and times of all workers are the defaults, and more jobs are healthy

	policy    policyPlan // of workers without their own
	manyLoops bool       // whether listeners may have more than one
	hooked    bool       // whether listeners may have a QueueEmpty hook: see doc.go
	sick      bool       // whether many jobs fail with the same error

	horizon   time.Duration // when the faults end and calm begins
	jobs      []jobPlan
	workers   []workerPlan
	sending   faultqueue.Options
	incidents []incident
	outage    outagePlan
	claims    claimsPlan
	wakes     wakesPlan
	pauses    pausesPlan
	pairing   pairingPlan
	pool      poolPlan
	shards    shardsPlan
	keys      keysPlan
	kinds     bool // the jobs have kinds
	groups    bool // some messages carry several jobs
	beacons   bool // the workers report in a control queue

	drop        time.Duration // when the queue is deleted; 0 for never
	deletingFor time.Duration // how long its name stays taken
}

// policyPlan is a worker's poison policy.
type policyPlan struct {
	maxAttempts, maxLost int
	keep, bare, adopt    bool
}

// outagePlan is an outage of something that handlers need, such as a database. The zero value is
// none.
type outagePlan struct {
	from, long time.Duration
	hangs      float64       // share of the runs in it that hang; the others fail soon
	hangsAfter time.Duration // since from: before that none does
	hanging    time.Duration // for how long, whatever becomes of their contexts
}

// covers reports whether the outage affects handlers that begin at the instant.
func (o outagePlan) covers(at time.Duration) bool { return at >= o.from && at < o.from+o.long }

// newPlan draws the plan of a seed.
func newPlan(seed uint64) *plan {
	p := newCommonPlan(seed)
	p.drawShards()
	p.drawKeys()
	p.drawLimits()
	p.drawBeacons()
	p.drawAdaptive()
	p.drawKinds()
	p.drawGroups()
	return p
}

// newCommonPlan draws all but what limits the workers or divides the queue.
func newCommonPlan(seed uint64) *plan {
	d := dice(seed)
	p := &plan{
		dice:      d,
		faultless: d.chance(0.2, "faultless"),
		ordinary:  d.chance(0.4, "ordinary"),
		manyLoops: d.chance(0.5, "many loops"),
		hooked:    d.chance(0.1, "hooked"),
		sick:      d.chance(0.15, "sick"),
		horizon:   d.within(2*time.Minute, 12*time.Minute, "horizon"),
	}
	p.policy = p.bounds("world")
	p.policy.bare = d.chance(0.1, "bare")
	p.drawClaims()
	p.drawFaults()
	p.drawWakes()
	p.drawPauses()
	p.drawPairing()
	least := 5
	if p.outage.long > 0 { // fewer would not be recognized as an outage
		least = 40
	}
	for n := range d.number(least, 60, "jobs") {
		p.jobs = append(p.jobs, p.job(n))
	}
	if p.faultless {
		w := p.worker(0)
		w.start, w.survives = 0, true
		w.ending, w.grace = stopped, 10*time.Minute // longer than any run
		p.workers = []workerPlan{w}
		p.sending = faultqueue.Options{Seed: seed, UsualLatency: usual}
		return p
	}
	for i := range d.number(1, 5, "workers") {
		p.workers = append(p.workers, p.worker(i))
	}
	for i := range p.workers[:min(d.number(0, 2, "survivors"), len(p.workers))] {
		p.workers[i].survives, p.workers[i].ending = true, stopped
	}
	p.drawPool()
	p.sending = p.faults("producer")
	if p.pairing.clean {
		for op, r := range p.sending.Faults {
			p.sending.Faults[op] = onlyRefused(r)
		}
	}
	if d.chance(0.15, "drop") {
		p.drop = d.within(0, p.horizon, "drop at")
		p.deletingFor = d.within(0, 40*time.Second, "deleting for")
	}
	return p
}

// bounds draws a policy.
func (p *plan) bounds(whose string) policyPlan {
	d := p.dice
	b := policyPlan{
		maxAttempts: d.number(1, 5, whose, "max attempts"), maxLost: d.number(1, 5, whose, "max lost"),
		keep: d.chance(0.1, whose, "keep"), adopt: d.chance(0.3, whose, "adopt"),
	}
	if p.ordinary {
		b.maxAttempts, b.maxLost = 5, 5
	}
	return b
}

// drawFaults draws the incidents and the outage.
func (p *plan) drawFaults() {
	d := p.dice
	if p.faultless {
		return
	}
	least := 0
	if p.ordinary {
		least = 2
	}
	for i := range d.number(least, 3, "troubles") {
		p.incidents = append(p.incidents, p.incident(i))
	}
	if !p.ordinary && d.chance(0.2, "outage") {
		p.outage = outagePlan{
			from: d.within(0, p.horizon/2, "outage", "from"), long: d.within(20*time.Second, p.horizon/2, "outage", "long"),
			hangs: d.unit("outage", "hangs") * 0.5, hanging: d.within(time.Minute, 20*time.Minute, "outage", "hanging"),
		}
	}
}
