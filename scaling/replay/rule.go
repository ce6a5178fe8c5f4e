package replay

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/millrace/millrace/scaling"
)

// Rule is a way to decide how many instances there should be. It may be copied and replayed many times, also concurrently.
type Rule struct {
	// Name is how tables call it.
	Name string

	// Interval is how long lies between decisions. It is rounded to whole seconds, at least one.
	Interval time.Duration

	// Requests is how many requests to each queue a decision costs: readings of the depth and the like.
	Requests float64

	// Beacon is how long lies between the reports of an instance, each of which is one request. 0 means that instances do not report, which
	// costs nothing; the rule sees their figures all the same, as it would by other ways, such as a metrics service.
	Beacon time.Duration

	// Begin returns what decides in one replay of the trace. It may keep state between its calls. Each call has one sample
	// more than the one before; the newest is the last, and the number of instances in it is what became of the decision before.
	Begin func(t *Trace) func(h scaling.History) scaling.Decision
}

// The intervals at which the agent measures and instances report, which are the defaults of packages agent and beacon.
const (
	agentInterval  = 10 * time.Second
	beaconInterval = 10 * time.Second
)

// Agent returns the rule that is the policy itself, measured every 10 s, with instances that report every 10 s. A measurement reads the depth
// and peeks at the head of each queue. What reading the reports costs is counted by the number of instances: 32 in a request.
func Agent(name string, p scaling.Policy) Rule {
	return Rule{
		Name: name, Interval: agentInterval, Requests: 2, Beacon: beaconInterval,
		Begin: func(*Trace) func(scaling.History) scaling.Decision {
			var kept scaling.History // as an agent keeps it
			return func(h scaling.History) scaling.Decision {
				kept.Add(h[len(h)-1])
				return p.Decide(kept)
			}
		},
	}
}

// For returns the policy with what is known of the trace before it is replayed: Start and Max are the trace's, and Target is half of its SLA.
// DownAfter is Start, at least twice the time between measurements: to keep an instance for as long as it takes to start another costs no more than
// that. If what comes unexpectedly can wait for an instance to start and still end within the SLA, nothing is held ready for it: Wait is a third of the
// SLA, Utilization is 1, because what waits keeps the slots busy, and unless the policy has a Min, ToZero is set. What only instances know is
// left to them. Fields that the policy has are kept.
func For(t *Trace, p scaling.Policy) scaling.Policy {
	p.Start, p.Max = cmp.Or(p.Start, max(t.Start, time.Second)), cmp.Or(p.Max, t.Max)
	p.Target = cmp.Or(p.Target, t.SLA/2)
	p.DownAfter = cmp.Or(p.DownAfter, max(t.Start, 2*agentInterval))
	if t.SLA >= t.Start+seconds(t.handling(0))+2*agentInterval {
		p.Wait, p.Utilization = cmp.Or(p.Wait, t.SLA/3), cmp.Or(p.Utilization, 1)
		p.ToZero = p.Min == 0
	}
	return p
}

// Fixed returns the rule that has n instances at all times.
func Fixed(n int) Rule {
	return Rule{
		Name: fmt.Sprintf("fixed: %d", n), Interval: time.Hour,
		Begin: stateless(func(scaling.Sample) int { return n }),
	}
}

// Table returns the rule of steps that [scaling.Stepped] has for loops, read as percent of the trace's Max: under 100 messages a tenth of the
// instances, under 1,000 half of them, all above, and one for an empty queue. It measures every 10 s.
func Table() Rule {
	rule := scaling.Stepped()
	return Rule{
		Name: "depth table", Interval: agentInterval, Requests: 1,
		Begin: func(t *Trace) func(scaling.History) scaling.Decision {
			return byNewest(func(s scaling.Sample) int {
				depth, known := s.Depth.Get()
				if !known {
					return s.Instances
				}
				if depth <= 0 {
					return 1
				}
				return ceil(float64(t.Max) * float64(rule(scaling.Load{Depth: depth})) / 100)
			})
		},
	}
}

// stateless returns the Begin of a rule that looks at the newest sample only.
func stateless(decide func(scaling.Sample) int) func(*Trace) func(scaling.History) scaling.Decision {
	return func(*Trace) func(scaling.History) scaling.Decision { return byNewest(decide) }
}

func byNewest(decide func(scaling.Sample) int) func(scaling.History) scaling.Decision {
	return func(h scaling.History) scaling.Decision {
		newest := h[len(h)-1]
		return scaling.Decision{At: newest.At, From: newest.Instances, Instances: decide(newest)}
	}
}

// ceil rounds up, but for what rounding has added.
func ceil(x float64) int { return int(math.Ceil(min(x, 1<<40) - 1e-9)) }
