package simulation

import (
	"strings"

	"github.com/millrace/millrace/codec"
)

// handledBy returns the delivery that an entry of a handler is of, or nil.
func (a *account) handledBy(e entry) *delivery {
	if i := int(e.count) - 1; i >= 0 && i < len(a.deliveries) && a.deliveries[i].who == e.who {
		return a.deliveries[i]
	}
	return nil
}

// handled books what a handler wrote down.
func (b *books) handled(a *account, e entry) {
	d, s := a.handledBy(e), b.staff[e.who]
	if d == nil {
		b.complain(e, "a handler runs for what was not delivered to its worker")
		return
	}
	if e.kind == began {
		b.start(a, d, s, e)
		return
	}
	if e.kind == cutOff && d.ended != nil {
		return // both at one instant
	}
	if d.began == nil || d.ended != nil {
		b.complain(e, "a handler acts that does not run")
		return
	}
	switch e.kind {
	case cutOff:
		d.cut, d.cause = e.at, e.said
	case saving, saved:
		b.save(d, e)
	case batched:
		if e.n > s.plan.together {
			b.complain(e, "%d messages are handled in one go, at most %d may be", e.n, s.plan.together)
		}
		if s.stopped > 0 && e.at > max(s.stopped, d.began.at)+mostStep {
			b.complain(e, "a batch waits for company after the stop at %v", s.stopped)
		}
	case ended:
		b.end(a, d, s, e)
	}
}

func (b *books) start(a *account, d *delivery, s *worker, e entry) {
	s.running++
	if most := s.concurrency(d.entry.at); s.running > most {
		b.complain(e, "%d handlers run at once, the concurrency is %d", s.running, most)
	}
	if s.stopped > 0 && e.at > s.stopped+mostStep && !d.noted { // to record it takes a call
		b.complain(e, "a handler starts after the stop at %v", s.stopped)
	}
	switch {
	case d.began != nil:
		b.complain(e, "one delivery is handled twice")
	case a.removed != nil:
		b.complain(e, "a handler starts after its message was settled")
	case a.kept > 0 && e.count > a.kept:
		b.complain(e, "a handler runs for what is poison and kept")
	}
	d.began = &e
	p, attempt := s.plan.policy, int(e.count)
	if d.counted() {
		attempt = d.head.Attempts + 1
		if d.missing() > 0 && !d.noted && !a.job.largest { // which may have no room for it
			b.complain(e, "a handler runs after %d deliveries that ended in nothing, and its start is not recorded", d.missing())
		}
		if n := d.head.Starts; n >= p.maxLost && d.isFirst() {
			b.complain(e, "a handler runs after %d starts that nothing came of, MaxLost is %d", n, p.maxLost)
		}
		// The first of them was not recorded.
		if n := d.killed(); n > p.maxLost {
			b.complain(e, "a handler runs after %d that never ended, MaxLost is %d", n, p.maxLost)
		}
		if n := len(d.before()); n > 0 && b.runsOf(d.before()) > p.maxLost+1+mostSpared*len(b.staff) {
			b.complain(e, "%d deliveries between two settlements, MaxLost is %d", n, p.maxLost)
		}
	}
	if e.n != attempt {
		b.complain(e, "the handler is told of attempt %d, it is %d", e.n, attempt)
	}
	if attempt > p.maxAttempts {
		b.complain(e, "attempt %d, MaxAttempts is %d", attempt, p.maxAttempts)
	}
	if format := formatOf(a.text); format == codec.Envelope && strings.Contains(a.text, "\n"+thisMark) {
		b.complain(e, "an envelope in an envelope")
	}
}

// mostSpared is how many starts a worker leaves out of the count because their handlers
// returned.
const mostSpared = 20

// runsOf counts the deliveries whose handlers ran.
func (b *books) runsOf(ds []*delivery) (n int) {
	for _, d := range ds {
		if d.began != nil {
			n++
		}
	}
	return n
}

func formatOf(text string) codec.Format {
	_, _, format, _ := codec.Open(text, codec.Auto)
	return format
}

func (b *books) end(a *account, d *delivery, s *worker, e entry) {
	d.ended = &e
	if !d.givenUp {
		s.running--
	}
	if d.said(didSucceed) {
		a.successes++
	}
	if d.said(didFail) && (!strings.Contains(e.said, "cut off") || strings.Contains(e.said, "handler time-out")) {
		a.failures++
	}
	if after := s.plan.stuck(); after > 0 && d.cut > 0 && e.at > d.cut+after+mostStep && d.reported == 0 && s.stopped == 0 {
		b.complain(e, "a handler ran for %v after its context had ended, and nobody said so", e.at-d.cut)
	}
}

// report books that a handler is said to be stuck.
func (b *books) report(a *account, e entry) {
	s := b.staff[e.who]
	var d *delivery // the one of them whose context ended first
	for _, one := range a.deliveries {
		if one.who == e.who && one.began != nil && one.ended == nil && one.reported == 0 && one.cut > 0 && (d == nil || one.cut < d.cut) {
			d = one
		}
	}
	if d == nil || e.at < d.cut+s.plan.stuck() {
		b.complain(e, "a handler is reported that does not run, or whose context had not ended for %v", s.plan.stuck())
		return
	}
	d.reported = e.at
	if (e.said == givenUp) != s.plan.giveUp {
		b.complain(e, "GiveUp is %v", s.plan.giveUp)
	}
	if e.said == givenUp {
		d.givenUp = true
		s.running--
	}
}
