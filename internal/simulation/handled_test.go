package simulation

import "strings"

func (b *books) start(a *account, e entry) {
	s := b.staff[e.who]
	s.running++
	if s.running > s.plan.concurrency {
		b.complain(e, "%d handlers run at once, the concurrency is %d", s.running, s.plan.concurrency)
	}
	var d *delivery
	if i := int(e.count) - 1; i >= 0 && i < len(a.deliveries) && a.deliveries[i].who == e.who {
		d = a.deliveries[i]
	}
	if d == nil {
		b.complain(e, "a handler runs for what was not delivered to its worker")
		return
	}
	if d.began != nil {
		b.complain(e, "one delivery is handled twice")
	}
	d.began = &e
	if a.kept > 0 && e.count > a.kept {
		b.complain(e, "a handler runs for what is poison and kept")
	}
	p := b.world.plan
	attempt := int(e.count)
	if d.counted() {
		attempt = d.head.Attempts + 1
		if d.lost() >= int64(p.maxLost) {
			b.complain(e, "a handler runs after %d lost deliveries in a row, MaxLost is %d", d.lost(), p.maxLost)
		}
		if n := a.runsSince(d.head.Settled); n > p.maxLost {
			b.complain(e, "%d runs between two records, MaxLost is %d", n, p.maxLost)
		}
	}
	if e.n != attempt {
		b.complain(e, "the handler is told of attempt %d, it is %d", e.n, attempt)
	}
	if attempt > p.maxAttempts {
		b.complain(e, "attempt %d, MaxAttempts is %d", attempt, p.maxAttempts)
	}
}

func (b *books) end(a *account, e entry) {
	b.staff[e.who].running--
	i := int(e.count) - 1
	if i < 0 || i >= len(a.deliveries) || a.deliveries[i].began == nil {
		b.complain(e, "a handler ends that never began")
		return
	}
	a.deliveries[i].ended = &e
	if e.said == didSucceed || strings.HasPrefix(e.said, didSucceed) {
		a.successes++
	}
	if strings.HasPrefix(e.said, didFail) && (!strings.Contains(e.said, "cut off") || strings.Contains(e.said, "handler time-out")) {
		a.failures++
	}
}

// runsSince counts the runs of deliveries after the one of that count.
func (a *account) runsSince(count int64) int {
	n := 0
	for _, d := range a.deliveries {
		if d.began != nil && d.entry.count > count {
			n++
		}
	}
	return n
}
