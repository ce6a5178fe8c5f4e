package simulation

import (
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue/faultqueue"
)

// plan is everything that a seed decides before its world begins.
type plan struct {
	dice      dice
	way       way  // how processes reach the engine
	faultless bool // neither faults nor deaths nor an early end: the books are exact

	maxAttempts, maxLost int
	keep, bare, adopt    bool
	manyLoops            bool // whether listeners may have more than one

	horizon time.Duration // when chaos ends and the healthy worker begins
	jobs    []jobPlan
	workers []workerPlan
	sending faultqueue.Options

	drop        time.Duration // when the queue is deleted; 0 for never
	deletingFor time.Duration // how long its name stays taken
}

// ending is how a worker process ends before the horizon, at the latest.
type ending string

const (
	stopped ending = "stopped" // its context ends
	halted  ending = "halted"  // and its patience at once
	hurried ending = "hurried" // stopped, and halted while it drains
	killed  ending = "killed"  // no call after that instant
)

// workerPlan is one worker process.
type workerPlan struct {
	name       string
	start, end time.Duration
	ending     ending
	hurry      time.Duration // from the stop to the halt
	faults     faultqueue.Options

	concurrency, batch  int
	least               int
	linger              time.Duration
	loops               listener.Loops
	idleMin, idleMax    time.Duration
	hook                bool // QueueEmpty in place of a curve
	visibility          dispatcher.Visibility
	timeout, grace      time.Duration
	settle              time.Duration
	mostRetryDelay      time.Duration
	lastingUntilHorizon bool
}

// form is what the text of a message looks like.
type form string

const (
	enveloped form = "enveloped"
	foreign   form = "foreign" // JSON without an envelope
	base64ed  form = "base64"  // the same in Base64
	junk      form = "junk"    // no job at all
	broken    form = "broken"  // an envelope with a head that cannot be read
	newer     form = "newer"   // an envelope of a later version
)

// manner is what the handler does with a job.
type manner string

const (
	succeeds manner = "succeeds"
	fails    manner = "fails"    // some times, then succeeds
	never    manner = "never"    // always fails
	poisons  manner = "poisons"  // says that it is poison
	discards manner = "discards" // says that nobody needs it
	retries  manner = "retries"  // asks for another attempt some times
	snoozes  manner = "snoozes"  // is too early some times
	panics   manner = "panics"   // some times
	exits    manner = "exits"    // ends its goroutine some times
)

// jobPlan is one job and what becomes of it.
type jobPlan struct {
	n          int
	at         time.Duration // when it is sent
	delay, ttl time.Duration // 0 for none
	form       form
	manner     manner
	times      int           // of the manner, before it succeeds
	shortest   time.Duration // of its runs
	longest    time.Duration
	heedless   bool // does not look at its context
	stubborn   bool // looks at it and succeeds all the same
}

// newPlan draws the plan of a seed.
func newPlan(seed uint64) *plan {
	d := dice(seed)
	p := &plan{
		dice:        d,
		faultless:   d.chance(0.2, "faultless"),
		maxAttempts: d.number(1, 5, "max attempts"),
		maxLost:     d.number(1, 5, "max lost"),
		keep:        d.chance(0.1, "keep"),
		bare:        d.chance(0.1, "bare"),
		adopt:       d.chance(0.3, "adopt"),
		manyLoops:   d.chance(0.5, "many loops"),
		horizon:     d.within(2*time.Minute, 12*time.Minute, "horizon"),
	}
	for n := range d.number(5, 60, "jobs") {
		p.jobs = append(p.jobs, p.job(n))
	}
	if p.faultless {
		w := p.worker(0)
		w.start, w.end, w.lastingUntilHorizon = 0, p.horizon, true
		w.ending, w.grace = stopped, 10*time.Minute // longer than any run
		p.workers = []workerPlan{w}
		p.sending = faultqueue.Options{Seed: seed, UsualLatency: usual}
		return p
	}
	for i := range d.number(1, 5, "workers") {
		p.workers = append(p.workers, p.worker(i))
	}
	p.sending = p.faults("producer")
	if d.chance(0.15, "drop") {
		p.drop = d.within(0, p.horizon, "drop at")
		p.deletingFor = d.within(0, 40*time.Second, "deleting for")
	}
	return p
}

// usual is how long a call takes when nothing goes wrong.
var usual = faultqueue.Range{Min: time.Millisecond, Max: 40 * time.Millisecond}

func (p *plan) job(n int) jobPlan {
	d, about := p.dice, "job "+str(n)
	j := jobPlan{
		n:        n,
		at:       d.within(0, p.horizon*3/4, about, "at"),
		form:     pick(d, []form{enveloped, enveloped, enveloped, enveloped, enveloped, enveloped, enveloped, foreign, foreign, base64ed, junk, broken, newer}, about, "form"),
		manner:   pick(d, []manner{succeeds, succeeds, succeeds, succeeds, succeeds, fails, fails, never, never, poisons, discards, retries, snoozes, panics, exits}, about, "manner"),
		times:    d.number(1, 6, about, "times"),
		shortest: time.Microsecond,
	}
	if d.chance(0.4, about, "burst") { // many at once, so that batches are full
		j.at = p.horizon*time.Duration(d.number(0, 2, about, "which burst"))/4 + d.within(0, time.Second, about, "in burst")
	}
	switch d.number(0, 9, about, "pace") {
	case 0, 1, 2, 3: // all but instant
		j.longest = time.Millisecond
	case 4, 5, 6:
		j.longest = 5 * time.Second
	case 7, 8:
		j.shortest, j.longest = time.Second, 40*time.Second
	default: // longer than its lease
		j.shortest, j.longest = 20*time.Second, 3*time.Minute
	}
	j.heedless = d.chance(0.15, about, "heedless")
	j.stubborn = d.chance(0.15, about, "stubborn")
	if d.chance(0.15, about, "delayed") {
		j.delay = d.within(time.Second, 2*time.Minute, about, "delay")
	}
	if d.chance(0.1, about, "mortal") {
		j.ttl = j.delay + d.within(2*time.Second, 10*time.Minute, about, "ttl")
	}
	return j
}

func (p *plan) worker(i int) workerPlan {
	d, about := p.dice, "worker "+str(i)
	w := workerPlan{
		name:           about,
		start:          d.within(0, p.horizon*2/3, about, "start"),
		ending:         pick(d, []ending{stopped, stopped, halted, hurried, killed, killed}, about, "ending"),
		hurry:          d.within(time.Millisecond, 20*time.Second, about, "hurry"),
		faults:         p.faults(about),
		concurrency:    d.number(1, 20, about, "concurrency"),
		batch:          d.number(1, 12, about, "batch"),
		linger:         pick(d, []time.Duration{0, -1, 50 * time.Millisecond, 2 * time.Second}, about, "linger"),
		idleMin:        d.within(50*time.Millisecond, time.Second, about, "idle min"),
		hook:           d.chance(0.3, about, "hook"),
		grace:          d.within(time.Millisecond, time.Minute, about, "grace"),
		settle:         d.within(2*time.Second, 30*time.Second, about, "settle"),
		mostRetryDelay: d.steep(100*time.Millisecond, time.Minute, about, "retry delay"),
	}
	w.end = w.start + d.within(time.Second, p.horizon, about, "end")
	if w.end >= p.horizon {
		w.end, w.lastingUntilHorizon = p.horizon+d.within(0, time.Second, about, "after the horizon"), true
	}
	if d.chance(0.3, about, "ungraceful") {
		w.grace = -1
	}
	if d.chance(0.5, about, "least") {
		w.least = d.number(1, w.concurrency, about, "least fetch")
	}
	w.idleMax = w.idleMin + d.within(0, 8*time.Second, about, "idle max")
	if p.manyLoops {
		w.loops.Min = d.number(1, 3, about, "least loops")
		w.loops.Max = w.loops.Min + d.number(0, 4, about, "more loops")
		w.loops.Pause = d.within(time.Millisecond, 30*time.Second, about, "pause")
	} else {
		w.loops = listener.Loops{Min: 1, Max: 1}
	}
	if d.chance(0.5, about, "fixed") {
		w.visibility = dispatcher.Fixed(d.within(5*time.Second, 40*time.Second, about, "visibility"))
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
	return w
}

// faults draws how a process's way to the service misbehaves.
func (p *plan) faults(who string) faultqueue.Options {
	d := p.dice
	o := faultqueue.Options{
		Seed: uint64(d.unit(who, "fault seed") * (1 << 53)), UsualLatency: usual, Record: true,
		Latency: faultqueue.Range{Min: time.Millisecond, Max: 3 * time.Second},
		LateBy:  faultqueue.Range{Min: time.Millisecond, Max: 2 * time.Minute},
	}
	if p.faultless {
		return o
	}
	o.Skew = d.within(-5*time.Minute, 5*time.Minute, who, "skew")
	if d.chance(0.3, who, "away") {
		o.Missing = faultqueue.Window{Within: p.horizon, For: d.within(time.Second, time.Minute, who, "away for")}
	}
	o.Faults = make(map[faultqueue.Op]faultqueue.Rates)
	for _, op := range []faultqueue.Op{faultqueue.Enqueue, faultqueue.Dequeue, faultqueue.Update, faultqueue.Delete, faultqueue.Properties, faultqueue.Create} {
		about := string(op)
		rate := func(fault string) float64 {
			if !d.chance(0.6, who, about, fault, "at all") {
				return 0
			}
			return d.unit(who, about, fault) * 0.15
		}
		r := faultqueue.Rates{
			Throttled: rate("throttled"), Unavailable: rate("unavailable"), LostRequest: rate("lost request"),
			LostAnswer: rate("lost answer"), Duplicate: rate("duplicate"), Slow: rate("slow"), Late: rate("late"),
		}
		if who == "producer" && p.bare {
			r.Duplicate = 0 // nobody could tell which of the two a bare copy is of
		}
		if who != "producer" && d.chance(0.1, who, about, "deadly") {
			r.Death = 0.03
		}
		o.Faults[op] = r
	}
	return o
}
