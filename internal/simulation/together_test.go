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
	none    flaw = ""
	hollow  flaw = "hollow"  // none at all, though not nil
	short   flaw = "short"   // one is missing
	brittle flaw = "brittle" // its handler panics
	fleeing flaw = "fleeing" // its handler ends the goroutine
)

// handleTogether does the jobs of several messages in one go: it takes as long as the
// longest of them.
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
			r.said, r.err = didFail, errOutage
		case wrong != none:
			r.said, r.err = didFail, errBroken
		default:
			r.cut = cut || r.ctx.Err() != nil
			r.decide()
		}
		if r.last != nil { // not one of several can do that
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
	return pick(p.world.plan.dice, []flaw{hollow, short, brittle, fleeing}, append(about, "flaw")...)
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
	case hollow:
		return []error{}
	case short:
		if len(errs) == 1 {
			return []error{} // nil would mean that all is well
		}
		return errs[1:]
	case brittle:
		panic(errBroken)
	case fleeing:
		runtime.Goexit()
	}
	if good {
		return nil
	}
	return errs
}
