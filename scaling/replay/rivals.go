package replay

import (
	"cmp"
	"math"
	"time"

	"github.com/millrace/millrace/scaling"
)

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
