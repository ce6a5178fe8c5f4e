package simulation

import (
	"slices"
	"time"

	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue/faultqueue"
)

// usual is the duration of a call without faults.
var usual = faultqueue.Range{Min: time.Millisecond, Max: 40 * time.Millisecond}

// operations are the operations that processes use.
var operations = []faultqueue.Op{faultqueue.Enqueue, faultqueue.Dequeue, faultqueue.Update, faultqueue.Delete, faultqueue.Properties, faultqueue.Create}

// incident is a fault that affects all processes for a while.
type incident struct {
	from, long time.Duration
	queue      string        // affected; "" for all
	skew       time.Duration // of the service's clock
	faults     map[faultqueue.Op]faultqueue.Rates
}

// everything returns the same rates for all operations.
func everything(r faultqueue.Rates) map[faultqueue.Op]faultqueue.Rates {
	all := make(map[faultqueue.Op]faultqueue.Rates)
	for _, op := range operations {
		all[op] = r
	}
	return all
}

// incident draws an incident of a kind known in practice.
func (p *plan) incident(i int) incident {
	d, about := p.dice, "trouble "+str(i)
	t := incident{from: d.within(0, p.horizon, about, "from"), long: d.within(10*time.Second, 4*time.Minute, about, "long")}
	t.long = min(t.long, p.horizon-t.from)
	away := faultqueue.Rates{Unavailable: 0.5, Throttled: 0.3, LostRequest: 0.2}
	switch d.number(0, 7, about, "kind") {
	case 0: // the service is away
		t.faults = everything(away)
	case 1: // responses to dequeues are lost
		t.faults = map[faultqueue.Op]faultqueue.Rates{faultqueue.Dequeue: {LostResponse: 1}}
	case 2: // responses to dequeues are slow
		t.faults = map[faultqueue.Op]faultqueue.Rates{faultqueue.Dequeue: {Slow: 0.9}}
	case 3: // renewals and give-backs are slow
		t.faults = map[faultqueue.Op]faultqueue.Rates{faultqueue.Update: {Slow: 0.9}}
	case 4: // the service's clock is set
		t.skew = d.within(-10*time.Minute, 10*time.Minute, about, "skew")
	default: // the poison queue is away
		t.queue = jobs.Queue + poison.Suffix
		t.faults = everything(away)
	}
	return t
}

// poisonAway reports whether the poison queue is unavailable at some time.
func (p *plan) poisonAway() bool {
	return slices.ContainsFunc(p.incidents, func(t incident) bool { return isPoison(t.queue) })
}

// faults draws the faults of a process's calls.
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
		// Over before the horizon, whenever the process begins.
		long := d.within(time.Second, min(time.Minute, p.horizon/3), who, "away for")
		o.Missing = faultqueue.Window{Within: p.horizon/3 - long, For: long}
	}
	o.Faults = make(map[faultqueue.Op]faultqueue.Rates)
	for _, op := range operations {
		about := string(op)
		rate := func(fault string) float64 {
			if !d.chance(0.6, who, about, fault, "at all") {
				return 0
			}
			return d.unit(who, about, fault) * 0.15
		}
		r := faultqueue.Rates{
			Throttled: rate("throttled"), Unavailable: rate("unavailable"), LostRequest: rate("lost request"),
			LostResponse: rate("lost answer"), Duplicate: rate("duplicate"), Slow: rate("slow"), Late: rate("late"),
		}
		if who == "producer" && p.policy.bare {
			r.Duplicate = 0 // bare copies of two equal messages cannot be distinguished
		}
		if who != "producer" && d.chance(0.1, who, about, "deadly") {
			r.Death = 0.03
		}
		o.Faults[op] = r
	}
	return o
}

// since returns the faults of a process that begins at that instant: its own, the incidents, and
// none from the horizon on.
func (p *plan) since(birth time.Duration, o faultqueue.Options) *faultqueue.Options {
	if p.faultless {
		return &o
	}
	o.Phases = []faultqueue.Phase{{From: p.horizon - birth, For: 1 << 62, Faults: everything(faultqueue.Rates{})}}
	for _, t := range p.incidents {
		o.Phases = append(o.Phases, faultqueue.Phase{From: t.from - birth, For: t.long, Queue: t.queue, Faults: t.faults, Skew: t.skew})
	}
	return &o
}
