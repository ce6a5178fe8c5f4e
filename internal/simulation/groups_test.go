package simulation

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// drawGroups draws which messages carry a group of jobs, and how many items of a group each worker
// handles at once. Items heed their contexts and save nothing, and there is no outage of what all
// handlers need: other worlds have these.
func (p *plan) drawGroups() {
	d := p.dice
	if p.outage.long > 0 || p.claims.outage.long > 0 || p.pairing.on || p.keys.on() || p.policy.bare || p.adapts() || !d.chance(0.2, "groups") {
		return
	}
	p.groups = true
	for i := range p.jobs {
		j := &p.jobs[i]
		if j.form == enveloped && !j.largest && !j.claimed && !j.undecoded && d.chance(0.5, "job "+str(j.n), "group") {
			p.group(j)
		}
	}
	for i := range p.workers {
		p.workers[i].each = d.number(1, 4, p.workers[i].name, "each")
	}
}

// group makes a job a group.
func (p *plan) group(j *jobPlan) {
	d := p.dice
	j.behaviour, j.saves, j.heedless, j.stubborn, j.cleaning = grouped, 0, false, false, 0
	j.times, j.longest = 0, 0
	for i := range d.number(2, 8, "job "+str(j.n), "items") {
		about := "job " + str(j.n) + " item " + str(i)
		one := jobPlan{
			n: j.n, form: enveloped, shortest: time.Microsecond,
			behaviour: pick(d, []behaviour{succeeds, succeeds, succeeds, succeeds, succeeds, succeeds, fails, never, poisons, discards, retries, snoozes, panics, exits, typedNil}, about, "manner"),
			times:     d.number(1, 4, about, "times"), atOnce: j.atOnce, unsayable: j.unsayable,
			longest:  pick(d, []time.Duration{time.Millisecond, 5 * time.Second, 40 * time.Second}, about, "pace"),
			stubborn: d.chance(0.15, about, "stubborn"),
		}
		j.items = append(j.items, one)
		j.times, j.longest = max(j.times, one.times), j.longest+one.longest
	}
	j.shortest = j.longest // for the deadline, an upper bound
}

// The results of a run of a group. The ledger derives the others from those of its items.
const (
	didGroup = "a group" // in the history
	didLeave = "left"    // items were interrupted
)

// handleGroup handles a message that carries a group.
func (p *process) handleGroup(ctx context.Context, m *listener.Message[job]) error {
	r := p.begin(ctx, m)
	defer r.end()
	time.Sleep(r.within(1, 10*time.Millisecond, "begin"))
	r.outcome = didGroup
	return p.each(ctx, m)
}

// handleItem handles an item of a group.
func (p *process) handleItem(ctx context.Context, m *listener.Message[job]) error {
	if p.isDead() {
		return errBroken // a run of a dead process is none: the next one of the item would depend on whether it began
	}
	w, id := p.world, string(m.ID)+"/"+str(m.Item)
	r := &handling{process: p, ctx: ctx, message: m, subject: id, job: w.job(m.Body.N).items[m.Item], n: w.run(queue.ID(id)), at: w.now(), outcome: didNothing}
	e := entry{kind: itemBegan, who: p.plan.name, id: m.ID, count: m.DequeueCount, n: m.Item}
	p.note(e)
	w.running.Add(1)
	defer func() {
		e.kind, e.outcome = itemEnded, r.result()
		p.note(e)
		w.running.Done()
	}()
	time.Sleep(r.within(1, 10*time.Millisecond, "begin"))
	r.work()
	if r.last != nil && !p.isDead() {
		r.last()
	}
	return r.err
}

// itemOf is an item of a group in the ledger.
type itemOf struct {
	succeeded, discarded bool
	failed               poison.Reason // for good; "" for not
}

func (i *itemOf) done() bool { return i.succeeded || i.discarded }

// itemRun is a run of an item in one delivery. The outcome is empty until it has ended.
type itemRun struct{ outcome string }

// isFailure reports whether the run failed by itself, not because it was interrupted.
func (r *itemRun) isFailure() bool {
	return strings.HasPrefix(r.outcome, didFail) && (!strings.Contains(r.outcome, "(cut off") || strings.Contains(r.outcome, "handler time-out"))
}

// item checks an entry of an item.
func (b *ledger) item(a *message, e entry) {
	d, s := a.handledBy(e), b.workers[e.who]
	if d == nil || d.began == nil || d.ended != nil || e.n >= len(a.items) {
		b.addViolation(e, "an item is handled that is in no group whose handler runs")
		return
	}
	run := d.items[e.n]
	if e.kind == itemEnded {
		if run == nil || run.outcome != "" {
			b.addViolation(e, "the run of an item ends that is not running")
			return
		}
		run.outcome = e.outcome
		b.endItem(&a.items[e.n], d, run)
		return
	}
	switch {
	case d.head.Done.Has(e.n):
		b.addViolation(e, "item %d is handled, and was recorded as done", e.n)
	case d.head.Failed.Has(e.n):
		b.addViolation(e, "item %d is handled, and was recorded as failed for good", e.n)
	case run != nil:
		b.addViolation(e, "item %d is handled twice in one delivery", e.n)
	}
	if d.items == nil {
		d.items = make(map[int]*itemRun)
	}
	d.items[e.n] = &itemRun{}
	running := 0
	for _, one := range d.items {
		if one.outcome == "" {
			running++
		}
	}
	if most := max(s.plan.each, 1); running > most {
		b.addViolation(e, "%d items of a group are handled at once, want at most %d", running, most)
	}
}

// endItem records what became of an item in a run.
func (b *ledger) endItem(i *itemOf, d *delivery, run *itemRun) {
	i.failed = "" // in an earlier run whose worker died before it recorded that
	switch {
	case strings.HasPrefix(run.outcome, didSucceed):
		i.succeeded = true
	case strings.HasPrefix(run.outcome, didDiscard):
		i.discarded = true
	case strings.HasPrefix(run.outcome, didPoison):
		i.failed = poison.ReasonRejected
	case run.isFailure() && d.head.Attempts+1 >= b.policy(d).maxAttempts:
		i.failed = poison.ReasonAttempts
	}
}

// together returns the result of the run of a group. An item that is to be handled again decides
// before one that was interrupted, then one that was too early, then one that has failed for good.
func (b *ledger) together(a *message, d *delivery) string {
	var again, left, early, succeeded bool
	var now poison.Reason // why the first item has failed for good in this delivery
	before, _, _ := strings.Cut(d.head.Failure, " ")
	for i := range a.items {
		one, run := &a.items[i], d.items[i]
		switch {
		case d.head.Done.Has(i):
			succeeded = succeeded || one.succeeded
		case d.head.Failed.Has(i):
		case run == nil:
			left = true
		case strings.HasPrefix(run.outcome, didSucceed):
			succeeded = true
		case strings.HasPrefix(run.outcome, didDiscard):
		case strings.HasPrefix(run.outcome, didSnooze):
			early = true
		case strings.HasPrefix(run.outcome, didPoison):
			now = cmp.Or(now, one.failed)
		case !run.isFailure():
			left = true
		case one.failed != "":
			now = cmp.Or(now, one.failed)
		default:
			again = true
		}
	}
	switch {
	case again:
		return didFail
	case left:
		return didLeave
	case early:
		return didSnooze
	case cmp.Or(now, poison.Reason(before)) == poison.ReasonAttempts:
		return didFail
	case cmp.Or(now, poison.Reason(before)) == poison.ReasonRejected:
		return didPoison
	case succeeded:
		return didSucceed
	}
	return didDiscard
}

// checkItems checks which items a text says are done and have failed for good. The text of a
// settlement must name all items that are done, a renewal may be older.
func (b *ledger) checkItems(a *message, d *delivery, e entry, head envelope.Head, settles bool) {
	for i := range a.items {
		one, run := &a.items[i], d.items[i]
		isDone := run != nil && (strings.HasPrefix(run.outcome, didSucceed) || strings.HasPrefix(run.outcome, didDiscard))
		switch {
		case head.Done.Has(i) && !one.done():
			b.addViolation(e, "item %d is recorded as done, and is not", i)
		case !head.Done.Has(i) && settles && d.ended != nil && (isDone || d.head.Done.Has(i)):
			b.addViolation(e, "item %d is done, and not recorded as done", i)
		case head.Failed.Has(i) && one.failed == "":
			b.addViolation(e, "item %d is recorded as failed for good, and has not", i)
		}
	}
}

// failedFor reports whether an item of a group has failed for good for that reason.
func (a *message) failedFor(reason poison.Reason) bool {
	for i := range a.items {
		if a.items[i].failed == reason {
			return true
		}
	}
	return false
}
