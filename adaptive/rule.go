package adaptive

import (
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/retry"
)

// backOff is what a failure multiplies the limit by.
const backOff = 0.9

// rule is additive increase, multiplicative decrease, as in TCP's congestion avoidance and Netflix's concurrency-limits. The
// lock of the limit guards it.
type rule struct {
	exact    float64 // the limit before it is rounded down
	credit   int     // successes since the last change
	starting bool    // nothing has failed yet: each success counts like a limit's worth
	cutAt    int64   // handlers that had begun when the limit was last cut
}

// succeeded counts a success. Successes while less than half of the limit is used say nothing about more. Requires mu.
func (l *Limit) succeeded(used bool) {
	if !used || l.memory.forbidsGrowth() {
		return
	}
	if l.rule.credit++; l.rule.credit >= l.limit() || l.rule.starting {
		l.set(l.rule.exact+1, change{why: grown})
	}
}

// cut shrinks the limit after a failure, unless it was cut after the handler began: then both failures are of one moment.
// At its lowest the limit holds back for a while. Requires mu.
func (l *Limit) cut(c call, said verdict, d *dispatcher.Delivery, err error) {
	if c.number <= l.rule.cutAt {
		return
	}
	l.rule.cutAt, l.rule.starting = l.begun, false
	if said == exhausted && l.limit() <= l.options.Min {
		l.beginHold(d, err)
		return
	}
	why := afterTimeout
	if said == exhausted {
		why = afterExhausted
	}
	l.set(float64(l.limit())*backOff, change{why: why, err: err})
}

// set changes the limit, within its bounds. Requires mu.
func (l *Limit) set(exact float64, c change) {
	l.rule.exact = min(max(exact, float64(l.options.Min)), float64(l.options.Max))
	l.rule.credit = 0
	c.at, c.from, c.to = time.Now(), l.limit(), int(l.rule.exact)
	if c.from == c.to {
		return
	}
	l.current.Store(int64(c.to))
	l.last = c
	l.resize()
}

// resize gives the pool as many slots as the limit is, but one for each listener at least. Requires mu.
func (l *Limit) resize() {
	if err := l.pool.Resize(max(l.limit(), l.places, 1)); err != nil {
		panic("adaptive: " + err.Error()) // each has one and reserves none
	}
}

// While the limit is at its lowest and the dependency is exhausted nevertheless, no handler starts for a time that doubles within
// these bounds. Handlers that fail at once would otherwise send their messages around as fast as the queue can.
const (
	firstHold = time.Second
	maxHold   = 15 * time.Second
)

// hold is the state of holding back. The lock of the limit guards it.
type hold struct {
	waits *retry.Waits // nil before the first
	timer *time.Timer  // wakes the listeners; nil before the first
}

// beginHold begins to hold back. Requires mu.
func (l *Limit) beginHold(d *dispatcher.Delivery, err error) {
	h := &l.hold
	if h.waits == nil {
		h.waits = retry.NewWaits("adaptive/"+string(d.ID), firstHold, maxHold) // not in step with other processes
	}
	wait := h.waits.Next()
	l.heldUntil.Store(int64(time.Since(l.made) + wait))
	l.last = change{why: held, at: time.Now(), from: l.limit(), to: l.limit(), wait: wait, err: err}
	if h.timer == nil {
		h.timer = time.AfterFunc(wait, l.wakeUsers)
	} else {
		h.timer.Reset(wait)
	}
}

// endHold ends it after a success. Requires mu.
func (l *Limit) endHold() {
	if l.hold.waits != nil {
		l.hold.waits.Reset()
	}
	if l.isHeld() {
		l.heldUntil.Store(0)
		l.hold.timer.Stop()
		l.tellUsers()
	}
}

// isHeld reports whether no slots are given.
func (l *Limit) isHeld() bool {
	until := l.heldUntil.Load()
	return until > 0 && time.Since(l.made) < time.Duration(until)
}
