package simulation

import (
	"strings"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
)

// handledBy returns the delivery that an entry of a handler is of, or nil.
func (a *message) handledBy(e entry) *delivery {
	if i := int(e.count) - 1; i >= 0 && i < len(a.deliveries) && a.deliveries[i].who == e.who {
		return a.deliveries[i]
	}
	return nil
}

// handled checks an entry of a handler.
func (b *ledger) handled(a *message, e entry) {
	d, s := a.handledBy(e), b.workers[e.who]
	if d == nil {
		b.addViolation(e, "a handler runs for a message that was not delivered to its worker")
		return
	}
	if e.kind == began {
		b.start(a, d, s, e)
		return
	}
	if e.kind == cutOff && d.ended != nil {
		return // both at the same instant
	}
	if d.began == nil || d.ended != nil {
		b.addViolation(e, "a handler acts that is not running")
		return
	}
	switch e.kind {
	case cutOff:
		d.cut, d.cause = e.at, e.outcome
	case saving, saved:
		b.save(d, e)
	case batched:
		if e.n > s.plan.together {
			b.addViolation(e, "a batch has %d messages, want at most %d", e.n, s.plan.together)
		}
		if s.stopped > 0 && e.at > max(s.stopped, d.began.at)+maxStep {
			b.addViolation(e, "a batch waits for company after the stop at %v", s.stopped)
		}
	case ended:
		if a.job.items != nil {
			e.outcome = b.together(a, d)
		}
		b.end(a, d, s, e)
	}
}

func (b *ledger) start(a *message, d *delivery, s *worker, e entry) {
	s.running++
	b.checkPool(e)
	b.takeKey(d, s, e)
	if most := s.concurrency(d.entry.at); s.running > most {
		b.addViolation(e, "%d handlers run at once, the concurrency is %d", s.running, most)
	}
	if s.stopped > 0 && e.at > s.stopped+maxStep && !d.noted && claimOf(d.entry.text) == "" && d.head.Key == "" { // recording the start takes a call, and so does a download; a key may be taken
		b.addViolation(e, "a handler starts after the stop at %v", s.stopped)
	}
	switch {
	case !s.plan.knows(a.job):
		b.addViolation(e, "a handler runs for a job of the kind %q, which its worker does not know", a.job.kind)
	case d.began != nil:
		b.addViolation(e, "one delivery is handled twice")
	case a.removed != nil:
		b.addViolation(e, "a handler starts after its message was settled")
	case a.kept > 0 && e.count > a.kept:
		b.addViolation(e, "a handler runs for kept poison")
	}
	d.began = &e
	d.back = false // an update before the run renewed the lease during a download
	p, attempt := s.plan.policy, int(e.count)
	if d.counted() {
		attempt = d.head.Attempts + 1
		if d.missing() > 0 && !d.noted && !a.job.largest { // it may have no room for the record
			b.addViolation(e, "a handler runs after %d deliveries without a settlement, and its start is not recorded", d.missing())
		}
		if n := d.head.Starts; n >= p.maxLost && d.isFirst() {
			b.addViolation(e, "a handler runs after %d starts without a settlement, MaxLost is %d", n, p.maxLost)
		}
		// The first of them was not recorded.
		if n := d.killed(); n > p.maxLost {
			b.addViolation(e, "a handler runs after %d runs that never ended, MaxLost is %d", n, p.maxLost)
		}
		if n := len(d.before()); n > 0 && b.runsOf(d.before()) > p.maxLost+1+maxSpared*len(b.workers) {
			b.addViolation(e, "%d deliveries between two settlements, MaxLost is %d", n, p.maxLost)
		}
	}
	if e.n != attempt {
		b.addViolation(e, "the handler's attempt is %d, want %d", e.n, attempt)
	}
	if attempt > p.maxAttempts {
		b.addViolation(e, "attempt %d, MaxAttempts is %d", attempt, p.maxAttempts)
	}
	if format := formatOf(a.text); format == codec.Envelope && strings.Contains(a.text, "\n"+thisMark) {
		b.addViolation(e, "an envelope in an envelope")
	}
}

// maxSpared is the number of starts that a worker leaves out of the count because their handlers
// returned.
const maxSpared = 20

// runsOf counts the deliveries whose handlers ran.
func (b *ledger) runsOf(ds []*delivery) (n int) {
	for _, d := range ds {
		if d.began != nil {
			n++
		}
	}
	return n
}

func formatOf(text string) codec.Format {
	_, _, format, _ := envelope.Open(text, codec.Auto, features...)
	return format
}

func (b *ledger) end(a *message, d *delivery, s *worker, e entry) {
	d.ended = &e
	b.freeKey(d, s)
	if !d.givenUp {
		s.running--
	}
	if d.endedWith(didSucceed) {
		a.successes++
	}
	if d.endedWith(didFail) && (!strings.Contains(e.outcome, "cut off") || strings.Contains(e.outcome, "handler time-out")) {
		a.failures++
	}
	if after := s.plan.stuck(); after > 0 && d.cut > 0 && e.at > d.cut+after+maxStep && d.reported == 0 && s.stopped == 0 {
		b.addViolation(e, "a handler ran for %v after its context had ended, and was not reported", e.at-d.cut)
	}
}

// report checks the report of a stuck handler.
func (b *ledger) report(a *message, e entry) {
	s := b.workers[e.who]
	var d *delivery // whose context ended first
	for _, one := range a.deliveries {
		if one.who == e.who && one.began != nil && one.ended == nil && one.reported == 0 && one.cut > 0 && (d == nil || one.cut < d.cut) {
			d = one
		}
	}
	if d == nil || e.at < d.cut+s.plan.stuck() {
		b.addViolation(e, "a handler is reported that is not running, or whose context had not ended for %v", s.plan.stuck())
		return
	}
	d.reported = e.at
	if (e.outcome == givenUp) != s.plan.giveUp {
		b.addViolation(e, "GiveUp is %v", s.plan.giveUp)
	}
	if e.outcome == givenUp {
		d.givenUp = true
		s.running--
	}
}
