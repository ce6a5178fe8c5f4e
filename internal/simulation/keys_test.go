package simulation

import (
	"context"
	"time"

	"github.com/millrace/millrace/dispatcher/perkey"
	"github.com/millrace/millrace/listener"
)

// keysPlan is a world whose jobs have keys, of which a process runs one handler at a time. The zero value is
// none.
type keysPlan struct {
	n              int // how many keys there are
	wait, maxDelay time.Duration
}

func (k keysPlan) on() bool { return k.n > 0 }

// drawKeys draws the keys of a world and of its jobs. A handler that hangs in an outage would hold its key
// for longer than the audit waits.
func (p *plan) drawKeys() {
	d := p.dice
	likely := 0.1
	if p.shards.on() { // of which keys choose one
		likely = 0.4
	}
	if p.outage.long > 0 || !d.chance(likely, "keys") {
		return
	}
	p.keys = keysPlan{
		n:        d.number(1, 6, "keys", "n"),
		wait:     pick(d, []time.Duration{-1, 0, 100 * time.Millisecond, 20 * time.Second}, "keys", "wait"),
		maxDelay: d.steep(time.Second, time.Minute, "keys", "longest delay"),
	}
	for i := range p.jobs {
		j := &p.jobs[i]
		if (j.form == enveloped || j.form == newer) && d.chance(0.7, "job "+str(j.n), "keyed") {
			j.key = "key " + str(d.number(1, p.keys.n, "job "+str(j.n), "key"))
		}
	}
}

// newKeys returns the keys of a process; nil if there are none.
func (p *plan) newKeys() *perkey.Keys {
	if !p.keys.on() {
		return nil
	}
	keys, err := perkey.New(&perkey.Options{Wait: p.keys.wait, MaxDelay: p.keys.maxDelay})
	if err != nil {
		panic(err)
	}
	return keys
}

// keysOf returns the keys of a process. Listeners that share a pool are one process.
func (w *world) keysOf(of *workerPlan) *perkey.Keys {
	if of.member.weight > 0 {
		return w.keys
	}
	return w.plan.newKeys()
}

// oneAtATime limits a handler to one at a time for each key.
func (p *process) oneAtATime(h listener.Handler[job]) listener.Handler[job] {
	if p.keys == nil {
		return h
	}
	alive := func(ctx context.Context, m *listener.Message[job]) error {
		if p.isDead() { // its handlers have returned at once, and a dead process passes no key on
			return errBroken
		}
		return h(ctx, m)
	}
	apart := func(next listener.Handler[job]) listener.Handler[job] {
		return func(ctx context.Context, m *listener.Message[job]) error {
			// The messages of a dequeue would ask for their key at one instant, in any order.
			time.Sleep(p.world.plan.dice.within(1, time.Millisecond, "ask for the key", string(m.ID), str(int(m.DequeueCount)), p.plan.name))
			return next(ctx, m)
		}
	}
	return listener.Chain(alive, apart, perkey.MiddlewareBy(p.keys, p.world.breakage.key))
}

// keyedRuns returns what the wait for keys may add to the deadline: one run after the other of all jobs with
// keys, and before each the longest delay.
func (c *pace) keyedRuns(j jobPlan, runs int, long time.Duration) time.Duration {
	if j.key == "" {
		return 0
	}
	return long + time.Duration(runs+1)*(c.world.plan.keys.maxDelay+wakeUp+c.lingering+2*maxStep)
}

// holder is who holds a key: a process, or a pool, whose listeners are one process.
type holder struct{ process, key string }

// holderOf returns who holds the key of a delivery while its handler runs; false if it has none.
func (b *ledger) holderOf(d *delivery, s *worker) (holder, bool) {
	if !b.world.plan.keys.on() || d.head.Key == "" {
		return holder{}, false
	}
	if s.plan.member.weight > 0 {
		return holder{"pool", d.head.Key}, true
	}
	return holder{s.plan.name, d.head.Key}, true
}

// takeKey checks that no other handler of the process runs that has the same key.
func (b *ledger) takeKey(d *delivery, s *worker, e entry) {
	h, keyed := b.holderOf(d, s)
	if !keyed {
		return
	}
	if other := b.held[h]; other != nil {
		b.addViolation(e, "two handlers of %s run at once with %q, the other since %v", h.process, h.key, other.began.at)
	}
	b.held[h] = d
}

// freeKey records that a handler has returned.
func (b *ledger) freeKey(d *delivery, s *worker) {
	if h, keyed := b.holderOf(d, s); keyed && b.held[h] == d {
		delete(b.held, h)
	}
}
