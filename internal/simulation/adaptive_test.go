package simulation

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/listener"
)

// adaptivePlan is an adaptive limit on the handlers of a worker. The zero value is none.
type adaptivePlan struct {
	min, max, start int
}

func (a adaptivePlan) on() bool { return a.max > 0 }

// The longest that a limit holds up a job whose dependency was exhausted, and all others meanwhile: see package
// adaptive.
const (
	maxComeAgain     = 5 * time.Second // the first time
	comeAgainGrowth  = 1.5             // with each delivery
	longestComeAgain = 5 * time.Minute
	maxHold          = 19 * time.Second // with its spread
	mostExhausting   = 20               // deliveries that may end so
)

var errRefused = errors.New("the dependency refuses the call")

// drawAdaptive draws which workers have an adaptive limit, and which jobs find their dependency exhausted there. What
// divides the slots otherwise, or lets jobs wait in them, is left to other worlds.
func (p *plan) drawAdaptive() {
	d := p.dice
	if p.pool.on() || p.shards.on() || p.keys.on() || p.outage.long > 0 || p.claims.outage.long > 0 || !d.chance(0.2, "adaptive") {
		return
	}
	for i := range p.workers {
		w := &p.workers[i]
		if w.isLimited() || w.together > 0 || !d.chance(0.8, w.name, "adaptive") {
			continue
		}
		a := adaptivePlan{min: d.number(1, (w.concurrency+1)/2, w.name, "adaptive", "min"), max: w.concurrency}
		a.start = d.number(a.min, a.max, w.name, "adaptive", "start")
		w.adaptive = a
		// The limit alone decides on the slots.
		w.changes = slices.DeleteFunc(w.changes, func(c change) bool { return c.Concurrency > 0 })
	}
	often := d.unit("adaptive", "how often") * 0.8
	for i := range p.jobs {
		if j := &p.jobs[i]; d.chance(often, "job "+str(j.n), "exhausts") {
			j.exhausts = d.number(1, 4, "job "+str(j.n), "how often it exhausts")
		}
	}
}

// adapts reports whether a worker has an adaptive limit.
func (p *plan) adapts() bool {
	return slices.ContainsFunc(p.workers, func(w workerPlan) bool { return w.adaptive.on() })
}

// newAdaptive returns the adaptive limit of a process, or nil.
func (w workerPlan) newAdaptive() *slots.Adaptive {
	if a := w.adaptive; a.on() {
		return must(slots.NewAdaptive(&slots.AdaptiveOptions{Min: a.min, Max: a.max, Start: a.start}))
	}
	return nil
}

// adapt makes the adaptive limit the only bound on the handlers of a listener.
func (p *process) adapt(o *listener.Options[job]) {
	if p.adaptive == nil {
		return
	}
	o.Concurrency, o.Slots = 0, p.adaptive.Slots(nil)
	o.Interceptors = []listener.Interceptor{p.apart, p.adaptive.Intercept}
}

// apart lets the slot of a handler become free later than the limit changes with its result: a loop that both wake
// would take any number of slots.
func (p *process) apart(ctx context.Context, v dispatcher.Delivery, next func(context.Context) error) error {
	defer time.Sleep(p.world.plan.dice.within(1, 10*time.Millisecond, "apart", p.plan.name, describe(v)))
	return next(ctx)
}

// exhausts reports whether a run finds its dependency exhausted. More often than it may be for free none does.
func (r *handling) exhausts() bool {
	return r.adaptive != nil && r.n < r.job.exhausts && r.message.DequeueCount < mostExhausting
}

// atLowest returns how many handlers can run while the adaptive limit is at its lowest, of so many without one.
func (w workerPlan) atLowest(most int) int {
	if !w.adaptive.on() {
		return most
	}
	return min(most, w.adaptive.min)
}

// addAdaptive notes that one of the workers may have an adaptive limit.
func (c *pace) addAdaptive(s workerPlan) {
	if s.adaptive.on() {
		c.adaptive, c.delay = true, max(c.delay, maxComeAgain)
	}
}

// exhausting returns how many runs of a job may still find their dependency exhausted.
func (c *pace) exhausting(j jobPlan, begun int) int {
	if !c.adaptive {
		return 0
	}
	return max(j.exhausts-begun, 0)
}

// comesAgain returns the longest that a message waits because its runs find their dependency exhausted.
func (c *pace) comesAgain(l leftover, begun int) (d time.Duration) {
	for k := range c.exhausting(l.job, begun) {
		deliveries := float64(l.deliveries) + float64(k+1+c.lost)
		d += time.Duration(min(float64(maxComeAgain)*math.Pow(comeAgainGrowth, deliveries), float64(longestComeAgain)))
	}
	return d
}

// isFree reports whether a run that found its dependency exhausted leaves no more than that its delivery is over. What it
// has saved is recorded as progress, and accounts for the deliveries before it.
func (d *delivery) isFree(head envelope.Head) bool {
	saved := d.message.settled == d.entry.count-1 && head.Settled == d.entry.count
	return d.endedWith(didExhaust) && !saved
}

// checkAdaptive checks that nothing holds a slot of an adaptive limit at the end of the world.
func (w *world) checkAdaptive() {
	for _, p := range w.processes {
		if p.adaptive == nil {
			continue
		}
		if st := p.adaptive.State(); st.Running != 0 || st.Held != 0 || st.Limit < st.Min || st.Limit > st.Max {
			w.addViolation("the adaptive limit of %s at the end: %d running, %d held, %d of %d…%d; want none running and none held", p.plan.name, st.Running, st.Held, st.Limit, st.Min, st.Max)
		}
	}
}
