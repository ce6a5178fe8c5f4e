package agent

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/scaling"
)

// hold keeps what somebody else has added, such as an operator by hand, for as long as the policy keeps what the load has
// called for. So it does with what the agent before this one has added just before it was killed, and did not write down. What somebody else has removed is not held: the load then decides at once, because jobs wait. Only the goroutine of the pool uses it.
type hold struct {
	last  scaling.Optional[int] // instances at the measurement before
	goal  scaling.Optional[int] // what we have asked for, until it is there
	added int                   // what somebody else has set
	at    time.Time             // when that was seen; zero if it never was
}

// see compares the number of instances with the one before. A platform may take its time, so everything between that one
// and what was asked for is ours.
func (h *hold) see(at time.Time, instances int) {
	last, known := h.last.Get()
	if known && instances > max(last, h.goal.Or(last)) {
		h.added, h.at = instances, at
	}
	h.last = scaling.Known(instances)
	if instances == h.goal.Or(instances) {
		h.goal = scaling.Optional[int]{}
	}
}

func (h *hold) asks(n int) { h.goal = scaling.Known(n) }

// apply returns the decision about a sample, or one that removes nothing for now.
func (h *hold) apply(at time.Time, p scaling.Policy, d scaling.Decision) scaling.Decision {
	p = p.WithDefaults()
	keep := min(d.From, p.Max)
	if h.at.IsZero() || at.Sub(h.at) >= p.DownAfter || d.Instances >= keep {
		return d
	}
	d.Why = fmt.Sprintf("%s stays so for %v, because somebody else, or an agent before this one, had set %d at %s; %d would do: %s",
		change(d.From, keep), p.DownAfter, h.added, h.at.Format(time.TimeOnly), d.Instances, d.Why)
	d.Instances = keep
	return d
}

func change(from, to int) string {
	if from == to {
		return fmt.Sprintf("%d:", from)
	}
	return fmt.Sprintf("%d → %d:", from, to)
}
