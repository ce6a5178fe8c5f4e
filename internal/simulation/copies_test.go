package simulation

import "github.com/millrace/millrace/poison"

// copy books a message in the poison queue: whose it is, and whether it should be there.
func (b *books) copy(e entry) {
	b.copies++
	d, record := b.origin(e)
	if d == nil {
		b.complain(e, "a copy of what its worker was never given, or not of its text")
		return
	}
	a := d.account
	a.copies++
	d.copied = true
	if d.began != nil && d.ended == nil {
		b.complain(e, "a copy while the handler runs")
	}
	if record.Version == 0 {
		return // bare: it has no reason
	}
	if record.Text != d.entry.text {
		b.complain(e, "the record is not of this delivery")
	}
	p := b.world.plan
	attempt := d.head.Attempts + 1
	if !d.counted() {
		attempt = int(d.entry.count)
	}
	right := false
	switch record.Reason {
	case poison.ReasonAttempts:
		right = d.said(didFail) && attempt >= p.maxAttempts || d.began == nil && attempt > p.maxAttempts
	case poison.ReasonLost:
		right = d.began == nil && d.counted() && d.lost() >= int64(p.maxLost)
	case poison.ReasonUndecodable:
		right = d.began == nil && (a.job.form == junk || a.job.form == broken)
	case poison.ReasonRejected:
		right = d.said(didPoison)
	case poison.ReasonExpiring:
		right = a.acceptance.until != 0
	}
	// Poison that could not be moved carries its reason to the next delivery, where no
	// handler may run.
	if d.head.Poison != "" {
		right = d.began == nil && string(record.Reason) == d.head.Poison
	}
	if !right {
		b.complain(e, "the reason %q is not what happened: attempt %d, %d lost", record.Reason, attempt, d.lost())
	}
}

// origin finds the delivery that a copy is of.
func (b *books) origin(e entry) (found *delivery, _ poison.Record) {
	if record, err := poison.ParseRecord(e.text); err == nil {
		a := b.accounts[record.ID]
		i := record.DequeueCount - 1
		if a == nil || i < 0 || i >= int64(len(a.deliveries)) || a.deliveries[i].who != e.who {
			return nil, record
		}
		return a.deliveries[i], record
	}
	// Bare: the text says which message, but not which of its deliveries; rather one
	// that has no copy yet.
	for _, a := range b.order {
		for _, d := range a.deliveries {
			fits := d.who == e.who && d.entry.text == e.text && (d.began == nil || d.ended != nil)
			if fits && (found == nil || found.copied || !d.copied) {
				found = d
			}
		}
	}
	return found, poison.Record{}
}
