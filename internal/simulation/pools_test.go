package simulation

import (
	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/listener"
)

// poolPlan is a pool whose slots the workers of a world share, as listeners of one process. The zero value
// is none.
type poolPlan struct {
	slots  int
	ranked bool
}

func (p poolPlan) on() bool { return p.slots > 0 }

// memberPlan is a worker's part in a pool.
type memberPlan struct {
	weight, reserve, rank int
}

// drawPool draws the pool of a world. Its workers come and go, but none of them dies alone.
func (p *plan) drawPool() {
	d := p.dice
	if len(p.workers) < 2 || p.outage.long > 0 || p.claims.outage.long > 0 || !d.chance(0.15, "pool") {
		return
	}
	p.claims.deadly = 0 // as the faults of its workers below
	p.pool = poolPlan{slots: d.number(len(p.workers), 14, "pool", "slots"), ranked: d.chance(0.3, "pool", "ranked")}
	for i := range p.workers {
		w := &p.workers[i]
		w.member = memberPlan{weight: d.number(1, 10, "pool", w.name, "weight")}
		if d.chance(0.4, "pool", w.name, "reserves") {
			w.member.reserve = d.number(1, p.pool.slots/len(p.workers), "pool", w.name, "reserve")
		}
		if p.pool.ranked {
			w.member.rank = d.number(0, 2, "pool", w.name, "rank")
		}
		if w.ending == killed {
			w.ending = stopped
		}
		for op, r := range w.faults.Faults {
			r.Death = 0
			w.faults.Faults[op] = r
		}
	}
}

// joinPool makes the listener of a process a member of the pool of its world.
func (p *process) joinPool(o *listener.Options[job]) {
	w := p.world
	if w.pool == nil || p.plan.member.weight == 0 { // it came for the calm
		return
	}
	m := p.plan.member
	of := &slots.MemberOptions{Name: p.plan.name, Weight: m.weight, Reserve: m.reserve, Rank: m.rank}
	w.breakage.member(of)
	o.Slots = w.pool.Member(of)
}

// newPool returns the pool of a world, with so many slots too many, or nil.
func (p *plan) newPool(more int) *slots.Shared {
	if !p.pool.on() {
		return nil
	}
	return must(slots.NewShared(&slots.SharedOptions{Slots: p.pool.slots + more}))
}

// share returns how many handlers workers that share a pool can run, of so many that they could run alone:
// what one reserves may be of no use to it.
func (p *plan) share(alone int, by []*process) int {
	if !p.pool.on() || by[0].plan.member.weight == 0 {
		return alone
	}
	open := p.pool.slots
	for _, one := range by {
		if len(by) > 1 {
			open -= one.plan.member.reserve
		}
	}
	return min(alone, max(open, 1))
}

// checkPool checks that members run no more handlers than their pool has slots.
func (b *ledger) checkPool(e entry) {
	p := b.world.plan.pool
	if !p.on() {
		return
	}
	running := 0
	for _, s := range b.workers {
		if s.plan.member.weight > 0 && !s.over {
			running += s.running
		}
	}
	if running > p.slots {
		b.addViolation(e, "%d handlers run at once in a pool of %d slots", running, p.slots)
	}
}

// checkReserves checks that a dequeue of a member asks for no slots that others have taken or reserved.
func (b *ledger) checkReserves(s *worker, e entry) {
	p := b.world.plan.pool
	if !p.on() || s.plan.member.weight == 0 {
		return
	}
	held := e.n + s.running
	for _, other := range b.workers {
		// One that begins after the dequeue was decided on finds its reserve in use.
		if other != s && other.plan.member.weight > 0 && !other.over && other.birth < e.at-maxDequeue {
			held += max(other.running, other.plan.member.reserve)
		}
	}
	// Its own reserve it may take even if others cannot have all of theirs yet, because they came later.
	if held > p.slots && e.n+s.running > s.plan.member.reserve {
		b.addViolation(e, "a dequeue asks for %d with %d handlers running, which leaves others less than they have or reserve of %d slots", e.n, s.running, p.slots)
	}
}
