package simulation

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

var without = flag.String("without", "", "what worlds are to do without, to narrow a failure down: some of "+strings.Join(slices.Sorted(maps.Keys(parts)), ","))

// parts is what can be left out of a plan.
var parts = map[string]func(*plan){
	"saves":     eachJob(func(j *jobPlan) { j.saves = 0 }),
	"ttls":      eachJob(func(j *jobPlan) { j.ttl = 0 }),
	"largest":   eachJob(func(j *jobPlan) { j.largest = false }),
	"cleaning":  eachJob(func(j *jobPlan) { j.cleaning = 0 }),
	"at-once":   eachJob(func(j *jobPlan) { j.atOnce = false }),
	"unsayable": eachJob(func(j *jobPlan) { j.unsayable = false }),
	"codecs":    eachJob(func(j *jobPlan) { j.undecoded = "" }),
	"nils": eachJob(func(j *jobPlan) {
		if j.manner == typedNil {
			j.manner = fails
		}
	}),
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
	"exits":     eachWorker(func(w *workerPlan) { w.hookExits = false }),
	"patience":  eachWorker(func(w *workerPlan) { w.idleMax = max(w.idleMin, min(w.idleMax, 20*time.Second)) }),
	"survivors": func(p *plan) {
		for i := range p.workers {
			p.workers[i].survives = p.faultless
		}
	},
	"outages":  func(p *plan) { p.outage = outagePlan{} },
	"troubles": func(p *plan) { p.troubles = nil },
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

// leaveOut takes parts out of a plan; the rest stays as the seed has drawn it.
func (p *plan) leaveOut(names string) error {
	for name := range strings.SplitSeq(names, ",") {
		if name == "" {
			continue
		}
		change, known := parts[name]
		if !known {
			return fmt.Errorf("worlds have no part %q", name)
		}
		change(p)
	}
	return nil
}
