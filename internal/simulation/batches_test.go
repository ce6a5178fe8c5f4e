package simulation

import (
	"context"
	"runtime"
	"time"

	"github.com/millrace/millrace/listener"
)

// flaw is what is wrong with the results of a batch.
type flaw string

const (
	none          flaw = ""
	noResults     flaw = "noResults" // an empty slice
	missingResult flaw = "short"     // one result is missing
	panicking     flaw = "panicking" // its handler panics
	exiting       flaw = "exiting"   // its handler ends the goroutine
)

// handleTogether handles a batch: it takes as long as the longest of its jobs.
func (p *process) handleTogether(ctx context.Context, ms []*listener.Message[job]) []error {
	w := p.world
	runs := make([]*handling, len(ms))
	var long time.Duration
	heedless := false
	for i, m := range ms {
		part, _ := p.parts.LoadAndDelete(m)
		runs[i] = part.(*handling)
		long = max(long, runs[i].within(runs[i].job.shortest, runs[i].job.longest, "length"))
		heedless = heedless || runs[i].job.heedless
		if p.isDead() {
			continue
		}
		w.history.note(entry{kind: batched, who: p.plan.name, id: m.ID, count: m.DequeueCount, n: len(ms)})
	}
	leader := runs[0]
	outage := w.plan.outage.covers(w.now())
	cut := false
	if outage {
		leader.waitForTheDatabase(w.plan.outage, runs[1:]...)
	} else {
		cut = leader.spend(ctx, long, heedless)
	}
	wrong := p.flaw(leader)
	for _, r := range runs {
		switch {
		case outage:
			r.outcome, r.err = didFail, errOutage
		case wrong != none:
			r.outcome, r.err = didFail, errBroken
		default:
			r.cut = cut || r.ctx.Err() != nil
			r.decide()
		}
		if r.last != nil { // one message of a batch cannot panic or exit
			r.last = nil
		}
	}
	return results(runs, wrong)
}

// flaw draws what is wrong with a batch.
func (p *process) flaw(leader *handling) flaw {
	about := []string{"batch", string(leader.message.ID), str(leader.n)}
	if !p.world.plan.dice.chance(0.1, append(about, "flawed")...) {
		return none
	}
	return pick(p.world.plan.dice, []flaw{noResults, missingResult, panicking, exiting}, append(about, "flaw")...)
}

// results is what the handler of the batch returns, if it returns.
func results(runs []*handling, wrong flaw) []error {
	errs := make([]error, len(runs))
	good := true
	for i, r := range runs {
		errs[i] = r.err
		good = good && r.err == nil
	}
	switch wrong {
	case noResults:
		return []error{}
	case missingResult:
		if len(errs) == 1 {
			return []error{} // nil would mean success
		}
		return errs[1:]
	case panicking:
		panic(errBroken)
	case exiting:
		runtime.Goexit()
	}
	if good {
		return nil
	}
	return errs
}
