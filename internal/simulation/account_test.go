package simulation

import (
	"strings"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/queue"
)

// account is one message of the main queue, from its acceptance to its end.
type account struct {
	id         queue.ID
	job        jobPlan
	acceptance entry
	text       string // as the server has it
	newest     queue.Receipt
	deliveries []*delivery
	kept       int64 // delivery after which it was first given back as poison that stays
	failures   int   // runs that failed by themselves
	successes  int   // runs that succeeded
	copies     int   // in the poison queue
	removed    *delivery
	dropped    bool
	remains    bool
}

// delivery is one time that the server handed a message out.
type delivery struct {
	account *account
	who     string
	entry   entry
	head    codec.Head
	began   *entry
	ended   *entry
	copied  bool
	back    bool // given back: an update after the run, or without one
}

func (b *books) accept(e entry) {
	n, known := b.world.texts[e.text]
	if !known || b.accounts[e.id] != nil {
		b.complain(e, "nobody sent this, or its id is taken")
		return
	}
	a := &account{id: e.id, job: b.world.plan.jobs[n], acceptance: e, text: e.text}
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
	d := &delivery{account: a, who: e.who, entry: e}
	d.head, _, _, _ = codec.Open(e.text, codec.Auto)
	a.deliveries = append(a.deliveries, d)
	a.newest = e.receipt
	b.receipts[e.receipt] = d
}

// counted tells whether attempts are counted in the text.
func (d *delivery) counted() bool { return strings.HasPrefix(d.entry.text, "millrace/1") }

// lost is how many deliveries before this one ended in nothing since the last record.
func (d *delivery) lost() int64 { return d.entry.count - 1 - d.head.Settled }

// hour is longer than any delay but that of poison which is kept.
const hour = 50 * time.Minute

// said tells whether the run of the delivery has ended like this.
func (d *delivery) said(result string) bool {
	return d.ended != nil && strings.HasPrefix(d.ended.said, result)
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
	if !running {
		// A renewal can arrive after the handler has returned.
		d.back = !d.said(didSucceed) && !d.said(didDiscard)
		// In a foreign message, which is not rewritten, nothing can say so.
		if a.kept == 0 && b.world.plan.keep && e.until > e.at+hour && strings.HasPrefix(e.text, "millrace/1") {
			a.kept = d.entry.count
		}
	} else if e.text != a.text {
		b.complain(e, "the text changes while the handler runs")
	}
	if e.text != a.text {
		b.record(a, d, e)
	}
	a.text = e.text
}

// record checks what a settlement wrote into the text.
func (b *books) record(a *account, d *delivery, e entry) {
	head, body, format, err := codec.Open(e.text, codec.Auto)
	_, was, _, _ := codec.Open(d.entry.text, codec.Auto)
	if err != nil || format != codec.Envelope || string(body) != string(was) {
		b.complain(e, "the text is not the one before with a record: %q", a.text)
		return
	}
	if !d.counted() && !b.world.plan.adopt {
		b.complain(e, "a foreign message is rewritten")
	}
	before := d.head.Attempts
	if !d.counted() {
		before = int(d.entry.count) - 1
	}
	switch recorded := head.Attempts - before; {
	case recorded == 0 && d.said(didFail) && !strings.Contains(d.ended.said, "cut off") && b.staff[d.who].stopped == 0 && head.Attempts < b.world.plan.maxAttempts:
		b.complain(e, "a failure is not recorded")
	case recorded == 0:
	case b.world.plan.keep && head.Attempts == b.world.plan.maxAttempts && !d.said(didSucceed):
		// All at once, so that what is kept is handled no more.
	case recorded != 1:
		b.complain(e, "%d attempts are recorded after one run", recorded)
	case !d.said(didFail):
		b.complain(e, "a failure is recorded where there was none")
	}
	if head.Settled != d.entry.count {
		b.complain(e, "settled is %d at delivery %d", head.Settled, d.entry.count)
	}
	if head.Attempts > b.world.plan.maxAttempts && head.Attempts > before && d.counted() { // a foreign one brings its deliveries
		b.complain(e, "%d failures are recorded, MaxAttempts is %d", head.Attempts, b.world.plan.maxAttempts)
	}
}

func (b *books) delete(a *account, e entry) {
	d := b.receipts[e.with]
	if d == nil || d.account != a || d.who != e.who {
		b.complain(e, "a delete with a receipt that the worker was not given")
		return
	}
	copied := d.copied || b.world.plan.bare && a.copies > 0 // a bare one does not say which delivery it is of
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
