package simulation

import (
	"slices"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/faultqueue"
	"github.com/millrace/millrace/queue/limits"
)

// drawLimits draws which workers are held to a limit of their own.
func (p *plan) drawLimits() {
	d := p.dice
	if !d.chance(0.12, "limits") {
		return
	}
	for i := range p.workers {
		w := &p.workers[i]
		if !d.chance(0.7, w.name, "limited") {
			continue
		}
		if which := d.number(0, 2, w.name, "limit of"); which != 0 {
			w.limit.Requests = float64(d.number(12, 60, w.name, "requests"))
		} else {
			w.limit.Messages = float64(d.number(16, 120, w.name, "messages"))
		}
		if w.limit.Requests > 0 && d.chance(0.5, w.name, "both limits") {
			w.limit.Messages = float64(d.number(16, 120, w.name, "messages"))
		}
		w.limit.Burst = pick(d, []time.Duration{0, 200 * time.Millisecond, 5 * time.Second}, w.name, "burst")
	}
}

// isLimited reports whether the worker is held to a limit.
func (w workerPlan) isLimited() bool { return w.limit != limits.ProcessOptions{} }

// burst is for how long the limit saves up.
func (w workerPlan) burst() time.Duration {
	if w.limit.Burst == 0 {
		return time.Second
	}
	return w.limit.Burst
}

// newLimit returns the limit of a process, or nil.
func (w workerPlan) newLimit() *limits.Process {
	if !w.isLimited() {
		return nil
	}
	l, err := limits.NewProcess(&w.limit)
	if err != nil {
		panic(err)
	}
	return l
}

// limitedTo returns a queue of the process that is held to its limit.
func (p *process) limitedTo(q queue.Queue) queue.Queue {
	if p.limit == nil {
		return q
	}
	return p.world.breakage.limit(p.limit, q)
}

// fetched returns how many messages a dequeue of a worker gets at most: its limit may leave less than the
// batch.
func (w workerPlan) fetched() int {
	if w.limit.Messages == 0 {
		return w.batch
	}
	saved := w.limit.Messages * w.burst().Seconds() * 3 / 4 // beside the quarter for claims
	return max(1, min(w.batch, int(saved), int(w.limit.Messages)))
}

// costOfRun is how many requests and messages a run takes at most, without its renewals.
const costOfRun = 12

// held returns how long the limit of one of the workers may hold them up for these runs, which take so long
// together.
func (c *pace) held(runs int, work time.Duration) time.Duration {
	if c.rate == 0 {
		return 0
	}
	const renewal = time.Second // less than the time between two
	cost := float64(costOfRun*runs) + float64(work/renewal)
	return time.Minute + time.Duration(cost/c.rate*float64(time.Second))
}

// slowest returns the lower of two rates, of which 0 is none.
func slowest(a, b float64) float64 {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// checkLimit checks the requests of a worker against its limit.
func (b *ledger) checkLimit(s *worker) {
	if s.limit == nil {
		return
	}
	b.checkRate(s, "requests", s.plan.limit.Requests, func(faultqueue.Call) float64 { return 1 })
	b.checkRate(s, "messages", s.plan.limit.Messages, func(c faultqueue.Call) float64 {
		switch {
		case c.Op == faultqueue.Delete, c.Op == faultqueue.Enqueue:
			return 1
		case c.Op == faultqueue.Dequeue && c.Error == "" && c.Fault != faultqueue.Duplicate: // what the limit knows of
			return float64(c.Count)
		}
		return 0
	})
}

// maxTurn is longer than what waits for its turn has to: what is sent at once meanwhile is paid for by those
// that come later.
const maxTurn = 20 * time.Second

// checkRate checks one of the rates. In no time is more sent of what waits, which dequeues and copies do, than
// the rate brings in that time, and what was saved up. What is sent at once is paid for by them.
func (b *ledger) checkRate(s *worker, what string, rate float64, cost func(faultqueue.Call) float64) {
	if rate == 0 {
		return
	}
	most := max(rate*s.plan.burst().Seconds(), 1)
	// What a bucket lacks is the most that was sent in any time up to now, beyond what the rate has brought in it.
	waiting, all, last := 0.0, 0.0, time.Duration(0)
	recent := func(until time.Duration, calls []faultqueue.Call) (sum float64) {
		for _, c := range slices.Backward(calls) {
			if c.At < until-maxTurn {
				break
			}
			if !waits(c) {
				sum += cost(c)
			}
		}
		return sum
	}
	calls := s.wire.Trace()
	for i, c := range calls {
		if c.Fault == faultqueue.Arrival {
			continue // the request of an earlier call
		}
		if s.death > 0 && s.birth+c.At >= s.death {
			return // nothing was sent from here on
		}
		brought := rate * (c.At - last).Seconds()
		waiting, all, last = max(waiting-brought, 0), max(all-brought, 0)+cost(c), c.At
		if !waits(c) {
			continue
		}
		waiting += cost(c)
		if waiting > most+rounding || all > most+rounding+recent(c.At, calls[:i]) {
			b.addViolation(entry{}, "%s: %s at %v, when %.1f %s more were sent than %.1f a second allow, %.1f of them by what waits; %.1f can be saved up", s.plan.name, c.Op, s.birth+c.At, all, what, rate, waiting, most)
			return
		}
	}
}

// rounding is what the times of calls and the parts of tokens may add.
const rounding = 0.01

// waits reports whether a limit makes the call wait.
func waits(c faultqueue.Call) bool { return c.Op == faultqueue.Dequeue || c.Op == faultqueue.Enqueue }
