package simulation

import (
	"strings"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// account is one message of the main queue, from its acceptance to its end.
type account struct {
	id         queue.ID
	job        jobPlan
	acceptance entry
	text       string // as the server has it, readable
	newest     queue.Receipt
	deliveries []*delivery
	kept       int64 // delivery after which it was first given back as poison that stays
	settled    int64 // delivery up to which it is recorded what came of it
	failures   int   // runs that failed by themselves
	successes  int   // runs that succeeded
	copies     int   // in the poison queue
	removed    *delivery
	dropped    bool
	remains    bool
}

func (b *books) accept(e entry) {
	n, known := b.world.texts[e.text]
	if !known || b.accounts[e.id] != nil {
		b.complain(e, "nobody sent this, or its id is taken")
		return
	}
	a := &account{id: e.id, job: b.world.jobs[n], acceptance: e, text: readable(e.text)}
	b.accounts[e.id] = a
	b.order = append(b.order, a)
}

func (a *account) expired(at time.Duration) bool {
	return a.acceptance.until != 0 && a.acceptance.until <= at
}

// present tells whether the message is in its queue.
func (a *account) present(at time.Duration) bool {
	return a.removed == nil && !a.dropped && !a.expired(at)
}

func (b *books) deliver(a *account, e entry) {
	if !a.present(e.at) {
		b.complain(e, "a message that is not in the queue is delivered")
	}
	if e.text != a.text {
		b.complain(e, "the text is not the one that was written: %q", a.text)
	}
	if want := int64(len(a.deliveries)) + 1; e.count != want {
		b.complain(e, "delivery %d of the message", want)
	}
	d := &delivery{account: a, who: e.who, entry: e, settled: min(a.settled, e.count-1)}
	var body []byte
	d.head, body, _, _ = codec.Open(e.text, codec.Auto)
	d.bodies = []string{string(body)}
	if int64(d.head.Starts) > e.count-1-d.head.Settled { // more than can have been: forged
		d.head.Settled, d.head.Starts = 0, 0
	}
	a.deliveries = append(a.deliveries, d)
	a.newest = e.receipt
	b.receipts[e.receipt] = d
}

func (b *books) update(a *account, e entry) {
	d := b.receipts[e.with]
	if d == nil || d.account != a {
		b.complain(e, "an update with a receipt that nobody was given")
		return
	}
	if e.said != "" {
		return
	}
	if e.with != a.newest || !a.present(e.at) {
		b.complain(e, "the server took an update with a receipt that is not the newest, or of a message that is gone")
	}
	a.newest = e.receipt
	b.receipts[e.receipt] = d
	running := d.began != nil && d.ended == nil
	switch {
	case b.starts(d, e.text):
		d.noted = true
	case !running:
		// A renewal can arrive after the handler has returned.
		d.back = !d.said(didSucceed) && !d.said(didDiscard)
		// In a foreign message, which is not rewritten, nothing can say so.
		if a.kept == 0 && strings.HasPrefix(e.text, thisMark) && poisoned(e.text) {
			a.kept = d.entry.count
		}
	}
	if e.text != a.text {
		b.rewrite(a, d, e, running)
	}
	a.text = e.text
}

// policy is that of the worker that the message was delivered to.
func (b *books) policy(d *delivery) policyPlan { return b.staff[d.who].plan.policy }

// rewrite checks a text that differs from the one before.
func (b *books) rewrite(a *account, d *delivery, e entry, running bool) {
	head, body, format, err := codec.Open(e.text, codec.Auto)
	if err != nil || !d.has(string(body)) {
		b.complain(e, "the text is neither the one before nor one that its handler has saved: %q", a.text)
		return
	}
	was, before, wasFormat, _ := codec.Open(a.text, codec.Auto)
	switch {
	case head == was && format == wasFormat: // saved, without an envelope
	case format != codec.Envelope:
		b.complain(e, "an envelope is taken away: %q", a.text)
	case wasFormat != codec.Envelope && !b.policy(d).adopt:
		b.complain(e, "a foreign message is rewritten")
	case string(body) != string(before) && (running || d.began != nil && head.Settled == d.entry.count-1):
		b.progress(a, d, e, head, was) // or it arrives late, when the handler has returned
	case running:
		b.complain(e, "the head changes while the handler runs: %q", a.text)
	case b.starts(d, e.text):
		b.recordStart(d, e, head)
	default:
		b.record(a, d, e, head)
	}
}

// progress checks what a save wrote into the head: what was lost before it does not count
// any more.
func (b *books) progress(a *account, d *delivery, e entry, head, was codec.Head) {
	if head.Settled != d.entry.count-1 || head.Starts != 0 {
		b.complain(e, "settled is %d with %d starts when delivery %d saves", head.Settled, head.Starts, d.entry.count)
	}
	head.Settled, head.Starts = was.Settled, was.Starts
	if head != was {
		b.complain(e, "a save changes more than the body: %q", a.text)
	}
	a.settled = d.entry.count - 1
}

// recordStart checks the record of a handler that is about to start.
func (b *books) recordStart(d *delivery, e entry, head codec.Head) {
	if d.missing() == 0 || head.Starts > d.head.Starts+1 {
		b.complain(e, "%d starts are recorded after %d, with %d deliveries that ended in nothing", head.Starts, d.head.Starts, d.missing())
	}
	head.Starts = d.head.Starts
	if head != d.head {
		b.complain(e, "the record of a start changes more than that")
	}
}

// record checks what a settlement wrote into the head.
func (b *books) record(a *account, d *delivery, e entry, head codec.Head) {
	p := b.policy(d)
	before := d.head.Attempts
	if !d.counted() {
		before = int(d.entry.count) - 1
	}
	switch recorded := head.Attempts - before; {
	case recorded == 0 && d.failed() && b.staff[d.who].stopped == 0 && head.Attempts < p.maxAttempts:
		b.complain(e, "a failure is not recorded")
	case recorded == 0:
	case p.keep && head.Attempts == p.maxAttempts && !d.said(didSucceed):
		// All at once, so that what is kept is handled no more.
	case recorded != 1:
		b.complain(e, "%d attempts are recorded after one run", recorded)
	case head.Poison == string(poison.ReasonExpiring) && d.ended != nil: // nobody will try that again
	case !d.said(didFail):
		b.complain(e, "a failure is recorded where there was none")
	case strings.Contains(d.ended.said, "(cut off: lease"):
		b.complain(e, "a lost lease is recorded as a failure")
	}
	switch {
	case d.counted() && d.began == nil && head.Poison == "": // it accounts for itself, and for nothing before
		if head.Settled != d.head.Settled+1 || head.Starts > d.head.Starts {
			b.complain(e, "settled is %d with %d starts after a delivery without a run, before it %d with %d", head.Settled, head.Starts, d.head.Settled, d.head.Starts)
		}
	case head.Settled != d.entry.count || head.Starts != 0:
		b.complain(e, "settled is %d with %d starts at delivery %d", head.Settled, head.Starts, d.entry.count)
	default:
		a.settled = d.entry.count
	}
	if head.Attempts > p.maxAttempts && head.Attempts > before && d.counted() { // a foreign one brings its deliveries
		b.complain(e, "%d failures are recorded, MaxAttempts is %d", head.Attempts, p.maxAttempts)
	}
}

func (b *books) delete(a *account, e entry) {
	d := b.receipts[e.with]
	if d == nil || d.account != a || d.who != e.who {
		b.complain(e, "a delete with a receipt that the worker was not given")
		return
	}
	copied := d.copied || a.copies > 0 && a.bare(b.policy(d)) // a bare one does not say which delivery it is of
	if !d.said(didSucceed) && !d.said(didDiscard) && !copied {
		b.complain(e, "a delete without a success, a discard or a copy before it")
	}
	if e.said != "" {
		return
	}
	if e.with != a.newest || !a.present(e.at) {
		b.complain(e, "the server took a delete with a receipt that is not the newest, or of a message that is gone")
	}
	a.removed = d
}

// bare tells whether copies of the message are bare: by policy, or because there is no
// room for a record.
func (a *account) bare(p policyPlan) bool { return p.bare || a.job.largest }
