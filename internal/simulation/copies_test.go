package simulation

import (
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/poison"
)

// copy records a message in the poison queue: of which delivery it is, and whether it should be there.
func (b *ledger) copy(e entry) {
	b.copies++
	d, record := b.origin(e)
	if d == nil {
		b.addViolation(e, "a copy of a message that its worker never got, or of another text")
		return
	}
	a := d.message
	if !b.workers[d.who].plan.knows(a.job) {
		b.addViolation(e, "a job of the kind %q is poisoned by a worker that does not know it", a.job.kind)
	}
	a.copies++
	d.copied = true
	if claim := claimOf(e.text); claim != "" {
		b.body(claim).copies = append(b.body(claim).copies, a)
	}
	if d.began != nil && d.ended == nil {
		b.addViolation(e, "a copy while the handler runs")
	}
	if record.Reason == "" {
		if !a.bare(b.policy(d)) {
			b.addViolation(e, "a copy without a record")
		}
		return // a bare copy has no reason
	}
	least := record.ID == ""
	if least && !a.job.largest {
		b.addViolation(e, "a copy with the least of a record")
	}
	if !least && !b.holds(d, readable(record.Text)) {
		b.addViolation(e, "the record is not of this delivery")
	}
	b.checkItems(a, d, e, b.world.open(readable(record.Text)).head, true)
	if record.Error == "" && d.ended != nil && !a.job.largest && !d.endedWith(didSnooze) && !d.endedWith(didLeave) {
		b.addViolation(e, "the record lacks the error")
	}
	if !b.reasonIsRight(d, record.Reason) {
		b.addViolation(e, "the reason %q is not what happened: %d starts lost of %d recorded, %s", record.Reason, d.lost(), d.head.Starts, d.result())
	}
}

// reasonIsRight reports whether the reason for a copy is what happened.
func (b *ledger) reasonIsRight(d *delivery, reason poison.Reason) bool {
	a, p := d.message, b.policy(d)
	// Poison that could not be moved carries its reason to the next delivery, where no
	// handler may run.
	if d.head.Poison != "" {
		return d.began == nil && string(reason) == d.head.Poison
	}
	if a.failedFor(reason) {
		return d.began == nil || d.endedWith(didFail) || d.endedWith(didPoison)
	}
	attempt := d.head.Attempts + 1
	if !d.counted() {
		attempt = int(d.entry.count)
	}
	switch reason {
	case poison.ReasonAttempts:
		return (d.endedWith(didFail) || d.undecoded()) && attempt >= p.maxAttempts || d.began == nil && attempt > p.maxAttempts
	case poison.ReasonOutlived: // this worker saw handlers return without their lease
		return d.began == nil && d.counted() && d.missing() >= int64(p.maxLost)
	case poison.ReasonLost:
		return d.began == nil && d.counted() && (d.lost() >= p.maxLost || a.job.largest && d.missing() >= int64(p.maxLost))
	case poison.ReasonUndecodable:
		return d.began == nil && (a.job.form == junk || a.job.form == broken)
	case poison.ReasonBlobGone:
		return b.goneIsRight(d)
	case poison.ReasonRejected:
		return d.endedWith(didPoison)
	case poison.ReasonExpiring:
		return a.acceptance.until != 0
	}
	return false
}

// withoutPlace returns the text of a record without what differs from run to run and from machine
// to machine, so that traces can be compared.
func withoutPlace(text string) string {
	record, err := poisonrecord.Parse(text)
	if err != nil {
		return text
	}
	record.Host, record.Stack = "", ""
	same, err := record.Encode()
	if err != nil {
		return text
	}
	return same
}

// origin returns the delivery that was copied.
func (b *ledger) origin(e entry) (found *delivery, _ poison.Record) {
	record, err := poison.ParseRecord(e.text)
	if err == nil && record.ID != "" {
		a := b.messages[record.ID]
		i := record.DequeueCount - 1
		if a == nil || i < 0 || i >= int64(len(a.deliveries)) || a.deliveries[i].who != e.who {
			return nil, record
		}
		return a.deliveries[i], record
	}
	// A bare copy, or one with the least of a record, says which message it is of, but not which
	// delivery: prefer one that has no copy yet. A record has the attempts, and the reason.
	text := readable(e.text)
	head := b.world.open(text).head
	if err == nil {
		opened := b.world.open(readable(record.Text))
		text, head = opened.body, opened.head
	}
	best := 0
	for _, a := range b.order {
		if head.ID != "" && head.ID != "job-"+str(a.job.n) {
			continue
		}
		for _, d := range a.deliveries {
			switch {
			case d.who != e.who, d.began != nil && d.ended == nil:
				continue
			case err == nil && d.counted() && record.Attempts > d.head.Attempts+1:
				continue
			case !b.holds(d, text) && (!d.counted() || !d.has(text)): // of an envelope, only the body is copied
				continue
			}
			fits := 1
			if err == nil && b.reasonIsRight(d, record.Reason) {
				fits += 2
			}
			if !d.copied {
				fits++
			}
			if fits >= best {
				found, best = d, fits
			}
		}
	}
	return found, record
}
