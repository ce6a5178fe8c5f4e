package simulation

import (
	"strings"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// message is one message of the main queue, from its acceptance to its end.
type message struct {
	id         queue.ID
	job        jobPlan
	acceptance entry
	text       string // on the server, as readable returns it
	claim      string // name of the blob to which the text refers; "" for none
	newest     queue.Receipt
	deliveries []*delivery
	kept       int64 // delivery after which it was first given back as poison that stays
	settled    int64 // delivery up to which outcomes are recorded
	failures   int   // runs that failed by themselves
	successes  int   // runs that succeeded
	copies     int   // in the poison queue
	removed    *delivery
	dropped    bool
	items      []itemOf // of a group
	remains    bool
}

func (b *ledger) accept(e entry) {
	n, known := b.world.texts[e.text]
	if !known || b.messages[e.id] != nil {
		b.addViolation(e, "a message that was not sent, or whose id is in use")
		return
	}
	b.checkPlace(e)
	a := &message{id: e.id, job: b.world.jobs[n], acceptance: e, text: readable(e.text), items: make([]itemOf, len(b.world.jobs[n].items))}
	b.messages[e.id] = a
	b.order = append(b.order, a)
	b.refers(a, e, a.text)
}

func (a *message) expired(at time.Duration) bool {
	return a.acceptance.until != 0 && a.acceptance.until <= at
}

// present reports whether the message is in its queue.
func (a *message) present(at time.Duration) bool {
	return a.removed == nil && !a.dropped && !a.expired(at)
}

func (b *ledger) deliver(a *message, e entry) {
	if !a.present(e.at) {
		b.addViolation(e, "a message that is not in the queue is delivered")
	}
	if e.text != a.text {
		b.addViolation(e, "the text is not the last one written: %q", a.text)
	}
	if want := int64(len(a.deliveries)) + 1; e.count != want {
		b.addViolation(e, "the dequeue count should be %d", want)
	}
	d := &delivery{message: a, who: e.who, entry: e, settled: min(a.settled, e.count-1)}
	opened := b.world.open(e.text)
	d.head, d.bodies = opened.head, []string{opened.body}
	if opened.claim != "" {
		b.body(opened.claim).came = true
	}
	if int64(d.head.Starts) > e.count-1-d.head.Settled { // more than possible: forged
		d.head.Settled, d.head.Starts = 0, 0
	}
	a.deliveries = append(a.deliveries, d)
	a.newest = e.receipt
	b.receipts[e.receipt] = d
}

func (b *ledger) update(a *message, e entry) {
	d := b.receipts[e.with]
	if d == nil || d.message != a {
		b.addViolation(e, "an update with a receipt that was not issued for the message")
		return
	}
	if e.outcome != "" {
		return
	}
	if e.with != a.newest || !a.present(e.at) {
		b.addViolation(e, "the server accepted an update with an old receipt, or of a message that is gone")
	}
	a.newest = e.receipt
	b.receipts[e.receipt] = d
	running := d.began != nil && d.ended == nil
	switch {
	case b.starts(d, e.text):
		d.noted = true
	case !running:
		// A renewal can arrive after the handler has returned.
		d.back = !d.endedWith(didSucceed) && !d.endedWith(didDiscard)
		// A foreign message is not rewritten and cannot be marked as poison.
		if a.kept == 0 && isEnvelope(e.text) && poisoned(e.text) {
			a.kept = d.entry.count
		}
	}
	if e.text != a.text {
		b.rewrite(a, d, e, running)
	}
	a.text = e.text
	b.refers(a, e, a.text)
}

// policy returns the policy of the worker that got the delivery.
func (b *ledger) policy(d *delivery) policyPlan { return b.workers[d.who].plan.policy }

// rewrite checks a text that differs from the one before.
func (b *ledger) rewrite(a *message, d *delivery, e entry, running bool) {
	now, was := b.world.open(e.text), b.world.open(a.text)
	head := now.head
	if now.err != nil || !d.has(now.body) {
		b.addViolation(e, "the text is neither the previous one nor one that its handler saved: %q", a.text)
		return
	}
	changed := head.Done != was.head.Done || head.Failed != was.head.Failed
	turn := a.items != nil && head.Started != "" && head.Started != was.head.Started
	progress := changed && head.Settled == d.entry.count-1 && (head.Starts == 0 || head.Starts == 1 && head.Started != "") // a renewal recorded it
	if a.items != nil {
		b.checkItems(a, d, e, head, !progress && !turn)
		head.Done, head.Failed, head.Failure, head.Started = was.head.Done, was.head.Failed, was.head.Failure, was.head.Started
	}
	switch {
	case turn && !progress:
		b.turn(d, e, head, was.head)
	case progress:
		b.progress(a, d, e, head, was.head)
	case head == was.head && now.format == was.format: // saved, without an envelope, or as it was
	case now.format != codec.Envelope:
		b.addViolation(e, "an envelope is removed: %q", a.text)
	case was.format != codec.Envelope && !b.policy(d).adopt:
		b.addViolation(e, "a foreign message is rewritten")
	case now.body != was.body && (running || d.began != nil && head.Settled == d.entry.count-1):
		b.progress(a, d, e, head, was.head) // or a save that arrives after the handler has returned
	case running:
		b.addViolation(e, "the head changes while the handler runs: %q", a.text)
	case b.starts(d, e.text):
		b.recordStart(d, e, head)
	default:
		b.record(a, d, e, head)
	}
}

// turn checks the record of an item that starts after a lost start.
func (b *ledger) turn(d *delivery, e entry, head, was envelope.Head) {
	if d.missing() == 0 || head.Starts < 1 || head.Starts > d.head.Starts+1 {
		b.addViolation(e, "%d starts are recorded with that of an item after %d, with %d deliveries without a recorded outcome", head.Starts, d.head.Starts, d.missing())
	}
	head.Starts = was.Starts
	if head != was {
		b.addViolation(e, "the record of an item that starts changes more than the starts and the progress")
	}
}

// progress checks the head that a save wrote: starts before it no longer count as lost.
func (b *ledger) progress(a *message, d *delivery, e entry, head, was envelope.Head) {
	if head.Settled != d.entry.count-1 || head.Starts != 0 && (d.message.items == nil || head.Starts != 1) {
		b.addViolation(e, "settled is %d with %d starts after a save of delivery %d", head.Settled, head.Starts, d.entry.count)
	}
	head.Settled, head.Starts = was.Settled, was.Starts
	head.Fingerprint, was.Fingerprint = "", "" // a save makes room
	if head != was {
		b.addViolation(e, "a save changes more than the body: %q", a.text)
	}
	a.settled = d.entry.count - 1
}

// recordStart checks the record of a handler's start.
func (b *ledger) recordStart(d *delivery, e entry, head envelope.Head) {
	if d.missing() == 0 || head.Starts > d.head.Starts+1 {
		b.addViolation(e, "%d starts are recorded after %d, with %d deliveries without a recorded outcome", head.Starts, d.head.Starts, d.missing())
	}
	head.Starts = d.head.Starts
	if head != d.head {
		b.addViolation(e, "the record of a start changes more than the starts")
	}
}

// record checks the head that a settlement wrote.
func (b *ledger) record(a *message, d *delivery, e entry, head envelope.Head) {
	p := b.policy(d)
	before := d.head.Attempts
	if !d.counted() {
		before = int(d.entry.count) - 1
	}
	switch recorded := head.Attempts - before; {
	case recorded == 0 && d.failed() && b.workers[d.who].stopped == 0 && head.Attempts < p.maxAttempts && !b.excused(d):
		b.addViolation(e, "a failure is not recorded")
	case recorded == 0:
	case p.keep && head.Attempts == p.maxAttempts && !d.endedWith(didSucceed):
		// All attempts at once, so that kept poison is not handled again.
	case recorded != 1:
		b.addViolation(e, "%d attempts are recorded after one run", recorded)
	case head.Poison == string(poison.ReasonExpiring) && d.ended != nil: // it will not be tried again
	case !d.endedWith(didFail) && !d.undecoded():
		b.addViolation(e, "a failure is recorded for a run that did not fail")
	case d.ended != nil && strings.Contains(d.ended.outcome, "(cut off: lease"):
		b.addViolation(e, "a lost lease is recorded as a failure")
	}
	switch {
	case d.undecoded() && head.Settled == d.entry.count && head.Starts == 0: // in place of a run
		a.settled = d.entry.count
	case d.counted() && (!d.ran() && head.Attempts == before || d.isFree(head)) && head.Poison == "": // it counts itself only
		if head.Settled != d.head.Settled+1 || head.Starts > d.head.Starts {
			b.addViolation(e, "settled is %d with %d starts after a delivery without a run, before it %d with %d", head.Settled, head.Starts, d.head.Settled, d.head.Starts)
		}
		if head.Settled == d.entry.count && d.began != nil {
			a.settled = d.entry.count
		}
	case head.Settled != d.entry.count || head.Starts != 0:
		b.addViolation(e, "settled is %d with %d starts at delivery %d", head.Settled, head.Starts, d.entry.count)
	default:
		a.settled = d.entry.count
	}
	if head.Attempts > p.maxAttempts && head.Attempts > before && d.counted() { // a foreign message begins with its deliveries
		b.addViolation(e, "%d failures are recorded, MaxAttempts is %d", head.Attempts, p.maxAttempts)
	}
}

func (b *ledger) delete(a *message, e entry) {
	d := b.receipts[e.with]
	if d == nil || d.message != a || d.who != e.who {
		b.addViolation(e, "a delete with a receipt that the worker did not get")
		return
	}
	copied := d.copied || a.copies > 0 && a.bare(b.policy(d)) // a bare copy does not say which delivery it is of
	d.duplicate = b.isDuplicate(d)
	// A renewal while a delete was refused may have recorded that every item is done.
	done := d.head.Items > 0 && d.head.Done.Len() == d.head.Items
	if !d.endedWith(didSucceed) && !d.endedWith(didDiscard) && !copied && !d.duplicate && !done {
		b.addViolation(e, "a delete without a success, a discard or a copy before it")
	}
	if e.outcome != "" {
		return
	}
	if e.with != a.newest || !a.present(e.at) {
		b.addViolation(e, "the server accepted a delete with an old receipt, or of a message that is gone")
	}
	a.removed = d
}

// bare reports whether copies of the message are bare: by policy, or because there is no room for
// a record.
func (a *message) bare(p policyPlan) bool { return p.bare || a.job.largest }
