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
// and peeks at the head of each queue. What reading the reports costs is counted by the number of instances: 32 in a request. A trace says nothing of CPU and memory, so a bound of
// them is left out.
func Agent(name string, p scaling.Policy) Rule {
	p.CPU, p.Memory = 0, 0
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

// KEDA is the scaler azure-queue of KEDA with the Horizontal Pod Autoscaler of Kubernetes. The zero value has their defaults: every 15 s
// ⌈depth / QueueLength⌉ pods, unless that is within 10 % of what there is; up by at most 100 % or 4 pods in 15 s, whichever is more; down
// to the most that was called for in 5 min. It looks for work every 30 s while there is no pod, and removes the last one after 5 min without work.
//
// Sources: keda.sh/docs/scalers/azure-storage-queue, keda.sh/docs/reference/scaledobject-spec and
// kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale.
type KEDA struct {
	// QueueLength is how many messages one pod is for. Defaults to 5.
	QueueLength float64

	// Down is how long fewer pods must have been enough. Defaults to 5 min.
	Down time.Duration

	// Cooldown is how long there must have been no work before the last pod goes. Defaults to 5 min.
	Cooldown time.Duration
}

const (
	hpaSync      = 15 * time.Second
	hpaTolerance = 0.1
	hpaPods      = 4
	kedaPolling  = 30 * time.Second
)

// Rule returns the rule.
func (k KEDA) Rule(name string) Rule {
	k.QueueLength = cmp.Or(k.QueueLength, 5)
	k.Down, k.Cooldown = cmp.Or(k.Down, 5*time.Minute), cmp.Or(k.Cooldown, 5*time.Minute)
	return Rule{
		Name: name, Interval: hpaSync, Requests: 1.5, // one at each sync, and one at each poll
		Begin: func(*Trace) func(scaling.History) scaling.Decision { return byNewest((&hpa{KEDA: k}).decide) },
	}
}

// hpa is the state of a KEDA.
type hpa struct {
	KEDA
	polled, active time.Time // when KEDA looked for work last, and when it found some
	called         window    // what was called for
}

func (h *hpa) decide(s scaling.Sample) int {
	depth, known := s.Depth.Get()
	if !known { // a scaler that fails changes nothing
		return s.Instances
	}
	if h.polled.IsZero() || s.At.Sub(h.polled) >= kedaPolling {
		if depth > 0 || h.polled.IsZero() {
			h.active = s.At
		}
		h.polled = s.At
		switch {
		case s.Instances == 0:
			return int(min(depth, 1))
		case s.At.Sub(h.active) >= h.Cooldown:
			return 0
		}
	}
	if s.Instances == 0 {
		return 0
	}
	called := s.Instances
	if ratio := float64(depth) / (h.QueueLength * float64(s.Instances)); math.Abs(ratio-1) > hpaTolerance {
		called = max(ceil(float64(depth)/h.QueueLength), 1)
	}
	down := h.called.most(s.At, h.Down, called)
	if called > s.Instances {
		return min(called, max(2*s.Instances, s.Instances+hpaPods))
	}
	return min(down, s.Instances)
}

// window are the figures of the latest time.
type window struct {
	at     []time.Time
	values []int
}

// most adds a value and returns the greatest of those that are no older than this.
func (w *window) most(now time.Time, span time.Duration, value int) int {
	for len(w.at) > 0 && now.Sub(w.at[0]) >= span {
		w.at, w.values = w.at[1:], w.values[1:]
	}
	w.at, w.values = append(w.at, now), append(w.values, value)
	greatest := value
	for _, v := range w.values {
		greatest = max(greatest, v)
	}
	return greatest
}

// Functions is target-based scaling of Azure Functions with a queue trigger: ⌈length / Executions⌉ instances, at most four more in
// a decision, one decision each 30 s, which is how often an instance may be added for other triggers than HTTP. How it scales in is not
// documented: here it goes to the formula at each decision, down to none.
//
// Sources: learn.microsoft.com/azure/azure-functions/functions-target-based-scaling and .../event-driven-scaling.
type Functions struct {
	// Executions is how many messages one instance is for. Defaults to 16, the default batchSize of the trigger.
	Executions float64
}

const (
	functionsInterval = 30 * time.Second
	functionsStep     = 4
)

// Rule returns the rule.
func (f Functions) Rule(name string) Rule {
	f.Executions = cmp.Or(f.Executions, 16)
	return Rule{
		Name: name, Interval: functionsInterval, Requests: 1,
		Begin: stateless(func(s scaling.Sample) int {
			depth, known := s.Depth.Get()
			if !known {
				return s.Instances
			}
			return min(ceil(float64(depth)/f.Executions), s.Instances+functionsStep)
		}),
	}
}

// Backlog is target tracking of AWS with the metric backlog per instance, measured once a minute: visible messages / instances in service. Its target
// is what an instance handles within the acceptable latency. When the metric was above the target for 3 minutes there
// are ⌈instances × metric / target⌉ instances; when it was below nine tenths of it for 15 minutes, there are fewer. How many fewer is not
// documented but as more gradual: here a tenth of them, at least one, once a minute while the metric stays low. At least one instance remains.
//
// Sources: docs.aws.amazon.com/autoscaling/ec2/userguide/as-using-sqs-queue.html and .../as-scaling-target-tracking.html. AWS has tuned the
// minutes by itself since November 2024, in ways that are not documented.
type Backlog struct {
	// Latency is the acceptable latency. Defaults to the SLA of the trace.
	Latency time.Duration
}

const (
	awsInterval = time.Minute
	awsOut      = 3  // minutes above the target
	awsIn       = 15 // minutes below it
	awsLow      = 0.9
)

// Rule returns the rule. The mean duration of a job is what instances report, and before that the Handling of the trace.
func (b Backlog) Rule(name string) Rule {
	return Rule{
		Name: name, Interval: awsInterval, Requests: 1,
		Begin: func(t *Trace) func(scaling.History) scaling.Decision {
			latency := cmp.Or(b.Latency, t.SLA)
			handling := t.handling(0)
			above, below := 0, 0
			return byNewest(func(s scaling.Sample) int {
				visible, known := s.Visible.Get()
				if !known { // insufficient data
					return s.Instances
				}
				if d, known := s.Handling.Get(); known && d > 0 {
					handling = d.Seconds()
				}
				target := max(latency.Seconds()*float64(t.Slots)/handling, 1)
				metric := float64(visible) / float64(max(s.Ready.Or(s.Instances), 1))
				above, below = inARow(above, metric > target), inARow(below, metric < awsLow*target)
				switch {
				case above >= awsOut:
					return max(s.Instances, ceil(float64(visible)/target))
				case below >= awsIn:
					return max(s.Instances-max(s.Instances/10, 1), 1)
				}
				return max(s.Instances, 1)
			})
		},
	}
}

func inARow(before int, again bool) int {
	if !again {
		return 0
	}
	return before + 1
}

// Latency is a range of queue latencies as Judoscale has it: the age of the oldest waiting message, every 10 s. Jump more instances when it exceeds
// High and none were added for 3 min; Jump fewer when it was below Low for 10 min, and then again after each further 10 min. At least one instance remains.
//
// Sources: judoscale.com/guides/autoscaling-behavior and judoscale.com/docs/tuning-your-application.
type Latency struct {
	// Low and High are the range. Default to a tenth and half of the SLA of the trace.
	Low, High time.Duration

	// Jump is how many instances come or go at once. Defaults to 1.
	Jump int
}

const (
	latencyInterval = 10 * time.Second
	latencyUp       = 3 * time.Minute
	latencyDown     = 10 * time.Minute
)

// Rule returns the rule.
func (l Latency) Rule(name string) Rule {
	return Rule{
		Name: name, Interval: latencyInterval, Requests: 1,
		Begin: func(t *Trace) func(scaling.History) scaling.Decision {
			low, high, jump := cmp.Or(l.Low, t.SLA/10), cmp.Or(l.High, t.SLA/2), max(l.Jump, 1)
			var added, low0 time.Time // when instances were added last, and since when the age is low
			return byNewest(func(s scaling.Sample) int {
				age, known := s.HeadAge.Get()
				if !known {
					return s.Instances
				}
				if age >= low || low0.IsZero() {
					low0 = s.At
				}
				switch {
				case age > high && (added.IsZero() || s.At.Sub(added) >= latencyUp):
					added = s.At
					return s.Instances + jump
				case s.At.Sub(low0) >= latencyDown:
					low0 = s.At
					return max(s.Instances-jump, 1)
				}
				return max(s.Instances, 1)
			})
		},
	}
}
