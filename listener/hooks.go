package listener

import (
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/scaling"
)

// guard contains the panics of the hooks that loops call. The dispatcher guards its own hooks;
// QueueEmpty, Idle.New and OnError are guarded where their results are used.
func (o *sessionOptions) guard(g *hook.Guard) {
	w := &o.Observer
	w.Polled = hook.Guard1(g, "Observer.Polled", w.Polled)
	w.Received = hook.Guard1(g, "Observer.Received", w.Received)
	w.Scaled = hook.Guard2(g, "Observer.Scaled", w.Scaled)
	w.Paused = hook.Guard2(g, "Observer.Paused", w.Paused)
	detected := o.Fetch.QueueWorkDetected
	o.Fetch.QueueWorkDetected = func(load Load) int {
		var loops int
		if g.Call("QueueWorkDetected", func() { loops = detected(load) }) {
			return loops
		}
		return scaling.PerBatch(load)
	}
}

// guardedCurve is the user's idle curve, with the default curve in place of calls that fail.
type guardedCurve struct {
	hooks     *hook.Guard
	user, own BackOff
}

// guardCurve returns the user's curve, guarded, or the default curve if the user's function
// fails.
func guardCurve(g *hook.Guard, user func() BackOff, own BackOff) BackOff {
	c := &guardedCurve{hooks: g, own: own}
	made := g.Call("Idle.New", func() {
		if c.user = user(); c.user == nil {
			panic("it returned nil")
		}
	})
	if !made {
		return own
	}
	return c
}

// NextBackOff implements [BackOff].
func (c *guardedCurve) NextBackOff() time.Duration {
	var wait time.Duration
	if c.hooks.Call("Idle.New: NextBackOff", func() { wait = c.user.NextBackOff() }) {
		return wait
	}
	return c.own.NextBackOff()
}

// Reset implements [BackOff].
func (c *guardedCurve) Reset() {
	c.hooks.Call("Idle.New: Reset", c.user.Reset)
	c.own.Reset()
}

// newController returns the user's controller, guarded, which may be nil. After a panic as many
// loops run as before.
func newController(g *hook.Guard, f func() scaling.Controller) scaling.Controller {
	if f == nil {
		return nil
	}
	var user scaling.Controller
	made := g.Call("LoopController", func() {
		if user = f(); user == nil {
			panic("it returned nil")
		}
	})
	if !made {
		return nil
	}
	return func(i scaling.Interval) int {
		var loops int
		if g.Call("LoopController: the controller", func() { loops = user(i) }) {
			return loops
		}
		return i.Loops
	}
}
