package simulation

import (
	"maps"
	"slices"
	"strings"
)

// close balances one account: the message is somewhere, and where it is in two places,
// or was handled twice, that has a cause.
func (b *books) close(a *account) {
	end := b.world.now()
	if a.present(end) != a.remains {
		b.complain(a.acceptance, "the message remains: %v; by the books: %v", a.remains, a.present(end))
	}
	fates := 0
	for _, fate := range []bool{a.successes > 0, a.copies > 0, a.remains, a.expired(end) && a.removed == nil, a.dropped, a.removed != nil && a.removed.said(didDiscard)} {
		if fate {
			fates++
		}
	}
	if fates == 0 {
		b.complain(a.acceptance, "the message is lost: neither handled to success nor poisoned nor discarded nor queued nor expired nor dropped")
	}
	causes := make(map[string]bool)
	for _, d := range a.deliveries {
		if d == a.removed || d.back && !d.copied {
			continue
		}
		cause := b.why(d)
		if cause == "" {
			b.complain(d.entry, "the delivery ended in nothing, and nothing explains it: its run %v", d.result())
			continue
		}
		causes[cause] = true
	}
	if len(causes) == 0 && b.doubled(a) {
		causes["the copy was made twice"] = true
	}
	ends := a.ends()
	if extra := max(a.successes+a.copies-1, 0); (extra > 0 || len(ends) > 1) && len(causes) == 0 {
		b.complain(a.acceptance, "%s, with %d successes and %d copies, without a cause", strings.Join(ends, " and "), a.successes, a.copies)
	}
	if len(ends) > 1 {
		b.overlaps[strings.Join(ends, " and ")+": "+strings.Join(slices.Sorted(maps.Keys(causes)), ", ")]++
	}
	if b.world.plan.faultless {
		b.closeExactly(a)
	}
	b.closeHealthy(a)
}

// closeHealthy checks that nothing becomes poison, nor is taken for a failure, of which
// nothing is wrong but the network, and what that does to workers.
func (b *books) closeHealthy(a *account) {
	p, j := b.world.plan, a.job
	healthy := p.ordinary && p.outage.long == 0 && j.form == enveloped && j.manner == succeeds && j.undecoded == "" && j.ttl == 0
	for _, w := range p.workers {
		healthy = healthy && w.together == 0 // with others, whose failures are its own
	}
	if !healthy {
		return
	}
	if a.copies > 0 {
		b.complain(a.acceptance, "a healthy message was poisoned")
	}
	for _, d := range a.deliveries {
		if d.head.Attempts > 0 {
			b.complain(d.entry, "a healthy message was taken for a failure")
			return
		}
	}
}

// ends are where the message ended that was accepted once: more than one is an overlap.
func (a *account) ends() (ends []string) {
	if a.successes > 0 {
		ends = append(ends, "succeeded")
	}
	if a.copies > 0 {
		ends = append(ends, "poisoned")
	}
	if a.remains {
		ends = append(ends, "still queued")
	}
	return ends
}

// doubled tells whether a fault may have made a second copy of the message.
func (b *books) doubled(a *account) bool {
	return slices.ContainsFunc(a.deliveries, func(d *delivery) bool { return d.copied && b.staff[d.who].badCopies })
}

// closeExactly balances an account of a world in which nothing went wrong.
func (b *books) closeExactly(a *account) {
	p := b.world.processes[0].plan.policy
	if a.successes+a.copies > 1 && !b.outlived(a) {
		b.complain(a.acceptance, "without faults: %d successes and %d copies", a.successes, a.copies)
	}
	mortal := a.acceptance.until != 0
	if n := len(a.deliveries); n > 0 && a.removed == nil && a.expired(b.world.now()) && a.copies == 0 {
		// One that is given back may wait for a slot until it is too late. One whose life
		// ends in a handler's hands is poison, as expiring, unless the handler was given up.
		if last := a.deliveries[n-1]; last.began != nil && !last.back && last.reported == 0 && !last.said(didSucceed) && last.over() < a.acceptance.until {
			b.complain(a.acceptance, "without faults: the message expired in silence under its handler, whose run %s", last.result())
		}
	}
	counts := a.job.form == enveloped && a.job.undecoded == "" && a.job.manner == never && !mortal && a.successes == 0
	if counts && a.failures != p.maxAttempts && !b.outlived(a) {
		b.complain(a.acceptance, "without faults: %d failed runs, MaxAttempts is %d", a.failures, p.maxAttempts)
	}
}

// outlived tells whether a run of the message went on after its time-out until its
// lease was over, which counts as lost and not as failed.
func (b *books) outlived(a *account) bool {
	return slices.ContainsFunc(a.deliveries, func(d *delivery) bool { return !d.back && d != a.removed })
}
