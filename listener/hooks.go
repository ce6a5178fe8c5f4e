package listener

import (
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/scaling"
)

// guard contains the panics of the hooks that loops call. The dispatcher guards its own hooks;
// QueueEmpty, Idle.Curve and OnError are guarded where their results are used.
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
