package listener

import (
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// guard wraps the hooks that loops call so that their panics are contained. Each call gets a
// goroutine of its own: there are few, and runtime.Goexit must not end a loop. The dispatcher
// guards its own hooks; QueueEmpty, Idle.New and OnError are guarded where their results are
// used.
func (o *sessionOptions) guard(g *hook.Guard) {
	if f := o.Observer.Polled; f != nil {
		o.Observer.Polled = func(p Poll) { g.Contain("Observer.Polled", func() { f(p) }) }
	}
	if f := o.Observer.Received; f != nil {
		o.Observer.Received = func(batch []queue.Message) { g.Contain("Observer.Received", func() { f(batch) }) }
	}
	if f := o.Observer.Scaled; f != nil {
		o.Observer.Scaled = func(s Scale) { g.Contain("Observer.Scaled", func() { f(s) }) }
	}
	if f := o.Observer.Paused; f != nil {
		o.Observer.Paused = func(p Pause) { g.Contain("Observer.Paused", func() { f(p) }) }
	}
	detected := o.QueueWorkDetected
	o.QueueWorkDetected = func(load Load) int {
		var loops int
		if g.Contain("QueueWorkDetected", func() { loops = detected(load) }) {
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
	made := g.Contain("Idle.New", func() {
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
	if c.hooks.Contain("Idle.New: NextBackOff", func() { wait = c.user.NextBackOff() }) {
		return wait
	}
	return c.own.NextBackOff()
}

// Reset implements [BackOff].
func (c *guardedCurve) Reset() {
	c.hooks.Contain("Idle.New: Reset", c.user.Reset)
	c.own.Reset()
}
