package simulation

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

var without = flag.String("without", "", "parts to leave out of the plans, to narrow down a failure, separated by commas: "+strings.Join(slices.Sorted(maps.Keys(parts)), ","))

// parts are the parts that can be left out of a plan.
var parts = map[string]func(*plan){
	"saves":     eachJob(func(j *jobPlan) { j.saves = 0 }),
	"ttls":      eachJob(func(j *jobPlan) { j.ttl = 0 }),
	"largest":   eachJob(func(j *jobPlan) { j.largest = false }),
	"cleaning":  eachJob(func(j *jobPlan) { j.cleaning = 0 }),
	"at-once":   eachJob(func(j *jobPlan) { j.atOnce = false }),
	"unsayable": eachJob(func(j *jobPlan) { j.unsayable = false }),
	"codecs":    eachJob(func(j *jobPlan) { j.undecoded = false }),
	"nils": eachJob(func(j *jobPlan) {
		if j.behaviour == typedNil {
			j.behaviour = fails
		}
	}),
	"claims": eachJob(func(j *jobPlan) { j.claimed = false }),
	"newer": eachJob(func(j *jobPlan) {
		if j.form == newer {
			j.form = enveloped
		}
	}),
	"batches":   eachWorker(func(w *workerPlan) { w.together = 0 }),
	"timeouts":  eachWorker(func(w *workerPlan) { w.timeout = 0 }),
	"give-up":   eachWorker(func(w *workerPlan) { w.giveUp = false }),
	"configure": eachWorker(func(w *workerPlan) { w.changes = nil }),
	"hooks":     eachWorker(func(w *workerPlan) { w.hookPanic = 0 }),
	"patience":  eachWorker(func(w *workerPlan) { w.idleMax = max(w.idleMin, min(w.idleMax, 20*time.Second)) }),
	"survivors": func(p *plan) {
		for i := range p.workers {
			p.workers[i].survives = p.faultless
		}
	},
	"outages": func(p *plan) { p.outage = outagePlan{} },
	"pauses": func(p *plan) {
		p.pauses.fleet = nil
		for i := range p.workers {
			p.workers[i].pauses = nil
		}
	},
	"adaptive": eachWorker(func(w *workerPlan) { w.adaptive = adaptivePlan{} }),
	"beacons":  func(p *plan) { p.beacons = false },
	"kinds": func(p *plan) {
		eachJob(func(j *jobPlan) { j.kind = "" })(p)
		eachWorker(func(w *workerPlan) { w.kinds = nil })(p)
	},
	"groups": eachJob(func(j *jobPlan) {
		if j.items != nil {
			j.items, j.behaviour, j.shortest, j.longest = nil, succeeds, time.Microsecond, time.Second
		}
	}),
	"losses":    func(p *plan) { p.wakes.lost, p.wakes.breaking = 0, 0 },
	"incidents": func(p *plan) { p.incidents = nil },
}

func eachJob(change func(*jobPlan)) func(*plan) {
	return func(p *plan) {
		for i := range p.jobs {
			change(&p.jobs[i])
		}
	}
}

func eachWorker(change func(*workerPlan)) func(*plan) {
	return func(p *plan) {
		for i := range p.workers {
			change(&p.workers[i])
		}
	}
}

// leaveOut removes parts from a plan; the rest stays as the seed decided.
func (p *plan) leaveOut(names string) error {
	for name := range strings.SplitSeq(names, ",") {
		if name == "" {
			continue
		}
		change, known := parts[name]
		if !known {
			return fmt.Errorf("plans have no part %q", name)
		}
		change(p)
	}
	return nil
}
