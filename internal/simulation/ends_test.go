package simulation

import (
	"maps"
	"slices"
	"strings"
)

// close checks the end of one message: it ended somewhere, and if it ended in two places, or was
// handled twice, there is a cause.
func (b *ledger) close(a *message) {
	end := b.world.now()
	if a.present(end) != a.remains {
		b.addViolation(a.acceptance, "the message is in the queue: got %v, want %v", a.remains, a.present(end))
	}
	fates := 0
	for _, fate := range []bool{a.successes > 0, a.copies > 0, a.remains, a.expired(end) && a.removed == nil, a.dropped, a.removed != nil && (a.removed.endedWith(didDiscard) || a.removed.duplicate)} {
		if fate {
			fates++
		}
	}
	if fates == 0 {
		b.addViolation(a.acceptance, "the message is lost: neither handled to success nor poisoned nor discarded nor queued nor expired nor dropped")
	}
	causes := make(map[string]bool)
	for _, d := range a.deliveries {
		if d == a.removed || d.back && !d.copied {
			continue
		}
		cause := b.why(d)
		if cause == "" {
			b.addViolation(d.entry, "the delivery ended without a settlement, without a cause: its run %v", d.result())
			continue
		}
		causes[cause] = true
	}
	if len(causes) == 0 && b.doubled(a) {
		causes["the copy was made twice"] = true
	}
	ends := a.ends()
	if extra := max(a.successes+a.copies-1, 0); (extra > 0 || len(ends) > 1) && len(causes) == 0 {
		b.addViolation(a.acceptance, "%s, with %d successes and %d copies, without a cause", strings.Join(ends, " and "), a.successes, a.copies)
	}
	if len(ends) > 1 {
		b.overlaps[strings.Join(ends, " and ")+": "+strings.Join(slices.Sorted(maps.Keys(causes)), ", ")]++
	}
	if b.world.plan.faultless {
		b.closeExactly(a)
	}
	b.closeHealthy(a)
}

// closeHealthy checks that a message does not become poison, nor count as failed, because of faults
// of the network or of workers alone.
func (b *ledger) closeHealthy(a *message) {
	p, j := b.world.plan, a.job
	healthy := p.ordinary && p.outage.long == 0 && j.form == enveloped && j.behaviour == succeeds && !j.undecoded && j.ttl == 0
	for _, w := range p.workers {
		healthy = healthy && w.together == 0 // a batch fails as a whole
	}
	if !healthy {
		return
	}
	gone := slices.ContainsFunc(a.deliveries, func(d *delivery) bool { return d.hidden || b.goneIsRight(d) })
	if a.copies > 0 && !gone {
		b.addViolation(a.acceptance, "a healthy message was poisoned")
	}
	for _, d := range a.deliveries {
		if d.head.Attempts > 0 {
			b.addViolation(d.entry, "a healthy message counts as failed")
			return
		}
	}
}

// ends returns where the message ended. More than one place is an overlap.
func (a *message) ends() (ends []string) {
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

// doubled reports whether a fault may have made a second copy of the message.
func (b *ledger) doubled(a *message) bool {
	return slices.ContainsFunc(a.deliveries, func(d *delivery) bool { return d.copied && b.workers[d.who].badCopies })
}

// closeExactly checks a message of a world without faults.
func (b *ledger) closeExactly(a *message) {
	p := b.world.processes[0].plan.policy
	if a.successes+a.copies > 1 && !b.outlived(a) {
		b.addViolation(a.acceptance, "without faults: %d successes and %d copies", a.successes, a.copies)
	}
	mortal := a.acceptance.until != 0
	if n := len(a.deliveries); n > 0 && a.removed == nil && a.expired(b.world.now()) && a.copies == 0 && !p.keep {
		// One that is given back may wait for a slot until it expires. One that expires while its
		// handler runs is poison, as expiring, unless the handler was given up. Poison that is kept stays
		// hidden until it expires.
		if last := a.deliveries[n-1]; last.began != nil && !last.back && last.reported == 0 && !last.endedWith(didSucceed) && last.over() < a.acceptance.until {
			b.addViolation(a.acceptance, "without faults: the message expired unnoticed while its handler ran, which %s", last.result())
		}
	}
	if !b.world.processes[0].plan.knows(a.job) { // the healthy worker handled it, by its own policy
		return
	}
	counts := a.job.form == enveloped && !a.job.undecoded && a.job.behaviour == never && !mortal && a.successes == 0
	if counts && a.failures != p.maxAttempts && !b.outlived(a) {
		b.addViolation(a.acceptance, "without faults: %d failed runs, MaxAttempts is %d", a.failures, p.maxAttempts)
	}
}

// outlived reports whether a run of the message went on after its time-out until its lease had
// ended, which counts as lost and not as failed.
func (b *ledger) outlived(a *message) bool {
	return slices.ContainsFunc(a.deliveries, func(d *delivery) bool { return !d.back && d != a.removed })
}
