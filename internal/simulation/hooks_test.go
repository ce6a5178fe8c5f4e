package simulation

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// hook is called in every hook of a worker, and sometimes panics, as users' code does. This depends
// on the hook's arguments.
func (p *process) hook(name string, about ...string) {
	if p.plan.hookPanic > 0 && p.world.plan.dice.chance(p.plan.hookPanic, append([]string{p.plan.name, "hook", name}, about...)...) {
		panic(fmt.Sprintf("the hook %s of %s panics", name, p.plan.name))
	}
}

// hooks sets the hooks of a listener.
func (p *process) hooks(o *listener.Options[job]) {
	d, w := p.world.plan.dice, p.plan
	o.OnError = p.onError
	if w.maxRetryDelay > 0 {
		o.RetryDelay = func(attempt int, err error) time.Duration {
			p.hook("RetryDelay", str(attempt))
			return d.within(0, w.maxRetryDelay, "retry", str(attempt), outcomeOf(err))
		}
	}
	o.Observer.Scaled = func(_ queue.Name, loops int) {
		yield()
		p.hook("Scaled", str(loops))
	}
	if w.hook {
		o.Fetch.Idle, o.Fetch.QueueEmpty = listener.Idle{}, p.queueEmpty
	}
	if w.hookPanic > 0 {
		p.observe(&o.Observer)
		o.Fetch.QueueWorkDetected = func(l scaling.Load) int {
			p.hook("QueueWorkDetected", fmt.Sprint(l.Depth, l.Loops, l.Running))
			return scaling.PerBatch(l)
		}
	}
}

// observe sets the hooks that only panic.
func (p *process) observe(o *listener.Observer) {
	o.Started = func(v dispatcher.Delivery) { p.hook("Started", describe(v)) }
	o.Finished = func(v dispatcher.Delivery, _ time.Duration, _ error) { p.hook("Finished", describe(v)) }
	o.Renewed = func(v dispatcher.Delivery, _ time.Duration, _ error) { p.hook("Renewed", describe(v)) }
	o.Lost = func(v dispatcher.Delivery, _ error) { p.hook("Lost", describe(v)) }
	o.Settled = func(v dispatcher.Delivery, o dispatcher.Outcome, _ time.Duration) {
		p.hook("Settled", describe(v), string(o))
	}
	o.Poisoned = func(v dispatcher.Delivery, _ poison.Reason, _ error) { p.hook("Poisoned", describe(v)) }
	o.Polled = func(v listener.Poll) { p.hook("Polled", v.Took.String()) }
	o.Received = func(batch []queue.Message) {
		p.hook("Received", string(batch[0].ID), fmt.Sprint(batch[0].DequeueCount))
	}
}

func describe(v dispatcher.Delivery) string { return fmt.Sprint(v.ID, v.DequeueCount) }

// onError records which handlers are reported as stuck, and whether a message has waited because its source fails.
func (p *process) onError(err error) {
	if errors.Is(err, listener.ErrOutage) {
		p.world.limited.Store(true)
	}
	if stuck := (*dispatcher.StuckError)(nil); errors.As(err, &stuck) && !p.isDead() {
		e := entry{kind: reported, who: p.plan.name, id: stuck.ID, outcome: "still runs"}
		if stuck.GivenUp {
			e.outcome = givenUp
		}
		p.world.history.note(e)
	}
	if p.plan.hookPanic > 0 {
		p.hook("OnError", text(err))
	}
}

// givenUp is the outcome of a report of a handler whose slot was given to another.
const givenUp = "given up"

func (p *process) queueEmpty(idle int) (time.Duration, bool) {
	yield()
	p.hook("QueueEmpty", str(idle))
	return p.world.plan.dice.within(p.plan.idleMin, p.plan.idleMax, p.plan.name, "idle", str(idle)), idle > 3
}

// curve returns the wait of a loop after its k-th empty poll in a row.
func (p *process) curve(k int) time.Duration {
	yield()
	p.hook("Curve", str(k))
	grown := p.plan.idleMin << min(k, 20)
	// Below the maximum the jitter is ours, from there on the listener's.
	return grown + p.world.plan.dice.within(0, p.plan.idleMin, p.plan.name, "curve", str(k))
}
