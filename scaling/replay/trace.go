package replay

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// Trace is a load over time, and what serves it. It must not change while it is replayed. Its zero value is not a trace: [Trace.Check]
// says what is missing.
type Trace struct {
	// Name is how tables call it.
	Name string

	// Step is how long each of Arrivals lasts, in whole seconds.
	Step time.Duration

	// Arrivals are the messages that come in each step, evenly within it.
	Arrivals []float64

	// Poison is how many of the Arrivals fail at every attempt. Nil means none.
	Poison []float64

	// Handling is how long a message occupies a slot.
	Handling time.Duration

	// Handlings is how long a message occupies a slot that begins in each step. Nil means Handling at all times.
	Handlings []time.Duration

	// Slots is how many handlers one instance runs at once.
	Slots int

	// Start is how long an instance takes from being asked for to its first job.
	Start time.Duration

	// Vary is by what share Start differs between instances: each takes Start × (1 ± Vary), by Seed. 0 means that all take Start.
	Vary float64

	// SLA is within what time after its arrival the handler of a message should have returned.
	SLA time.Duration

	// Initial is how many instances work when the trace begins.
	Initial int

	// Max is the most instances that a rule may have; more are not given.
	Max int

	// Accounts are the storage accounts that the load is spread over evenly. Empty means one.
	Accounts []string

	// Noise is how far readings are off: each figure lies within ± Noise of the truth, as a share of it, by Seed. 0 means exact.
	Noise float64

	// Missing is which share of readings fails, by Seed: of the depth, of the head age and of the instances' reports, each by itself.
	Missing float64

	// Seed is that of the random numbers.
	Seed uint64
}

// The bounds of a trace keep a replay within the memory and the time of a test.
const (
	longestTrace    = 31 * 24 * time.Hour
	longestHandling = 24 * time.Hour
	mostInstances   = 1_000_000
	mostMessages    = 1e15
)

// Check returns everything that is wrong with the trace, or nil. A load that its accounts cannot carry is wrong too.
func (t *Trace) Check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if t.Step < time.Second || t.Step%time.Second != 0 {
		wrong("step is %v: it must be a whole number of seconds", t.Step)
	}
	if len(t.Arrivals) == 0 {
		wrong("there are no arrivals: a trace has at least one step")
	}
	if steps := int64(len(t.Arrivals)); t.Step >= time.Second && steps > int64(longestTrace/t.Step) {
		wrong("%d steps of %v are longer than %v: replay a part of it", steps, t.Step, longestTrace)
	}
	if t.Poison != nil && len(t.Poison) != len(t.Arrivals) {
		wrong("there are %d steps of arrivals and %d of poison: each step needs both", len(t.Arrivals), len(t.Poison))
	}
	if t.Handlings != nil && len(t.Handlings) != len(t.Arrivals) {
		wrong("there are %d steps of arrivals and %d handling times: each step needs both", len(t.Arrivals), len(t.Handlings))
	}
	if t.Handlings == nil && (t.Handling <= 0 || t.Handling > longestHandling) {
		wrong("handling is %v: it must be positive and at most %v", t.Handling, longestHandling)
	}
	if t.Slots < 1 || t.Slots > mostInstances {
		wrong("slots are %d: an instance has 1 to %d", t.Slots, mostInstances)
	}
	if t.Start < 0 || t.Start > longestTrace {
		wrong("start is %v: it must not be negative, and at most %v", t.Start, longestTrace)
	}
	if t.SLA <= 0 || t.SLA > longestTrace {
		wrong("sla is %v: it must be positive, and at most %v", t.SLA, longestTrace)
	}
	if t.Max < 1 || t.Max > mostInstances {
		wrong("max is %d: a rule may have 1 to %d instances", t.Max, mostInstances)
	}
	if t.Initial < 0 || t.Initial > t.Max {
		wrong("initial is %d: it must be within 0 and max, which is %d", t.Initial, t.Max)
	}
	for _, share := range []struct {
		name  string
		value float64
	}{{"vary", t.Vary}, {"noise", t.Noise}, {"missing", t.Missing}} {
		if !(share.value >= 0 && share.value <= 1) { // NaN too
			wrong("%s is %v: it is a share, within 0 and 1", share.name, share.value)
		}
	}
	errs = append(errs, t.checkSteps())
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("trace %q: %w", t.Name, err)
	}
	if err := t.checkAccounts(); err != nil {
		return fmt.Errorf("trace %q: %w", t.Name, err)
	}
	return nil
}

// checkSteps returns the first step that is wrong.
func (t *Trace) checkSteps() error {
	for i, n := range t.Arrivals {
		if !(n >= 0 && n <= mostMessages) {
			return fmt.Errorf("step %d: %v messages: it must be a number from 0 to %g", i+1, n, mostMessages)
		}
		if i < len(t.Poison) && !(t.Poison[i] >= 0 && t.Poison[i] <= n) {
			return fmt.Errorf("step %d: %v of %v messages are poison: it must be a number from 0 to all of them", i+1, t.Poison[i], n)
		}
		if i < len(t.Handlings) && (t.Handlings[i] <= 0 || t.Handlings[i] > longestHandling) {
			return fmt.Errorf("step %d: handling is %v: it must be positive and at most %v", i+1, t.Handlings[i], longestHandling)
		}
	}
	return nil
}

// Length is how long the trace lasts.
func (t *Trace) Length() time.Duration { return time.Duration(len(t.Arrivals)) * t.Step }

// Peak returns the most messages a second that come, and when they begin to.
func (t *Trace) Peak() (rate float64, at time.Duration) {
	for i, n := range t.Arrivals {
		if r := n / t.Step.Seconds(); r > rate {
			rate, at = r, time.Duration(i)*t.Step
		}
	}
	return rate, at
}

// handling returns the handling time of jobs that begin in a step, in seconds.
func (t *Trace) handling(step int) float64 {
	if t.Handlings != nil {
		return t.Handlings[step].Seconds()
	}
	return t.Handling.Seconds()
}

// longest returns the longest handling time in seconds.
func (t *Trace) longest() float64 {
	if t.Handlings != nil {
		return slices.Max(t.Handlings).Seconds()
	}
	return t.Handling.Seconds()
}

func (t *Trace) poison(step int) float64 {
	if t.Poison == nil {
		return 0
	}
	return t.Poison[step]
}

// The limits of Azure Queue Storage: messages of 1 KiB a second in a queue, and requests a second in a storage account.
// Source: learn.microsoft.com/azure/storage/queues/scalability-targets.
const (
	queueMessages   = 2_000
	accountRequests = 20_000
)

func (t *Trace) accounts() float64 { return float64(max(len(t.Accounts), 1)) }

// queues returns how many queues the trace needs: of each account as many as carry its part of the peak.
func (t *Trace) queues() float64 {
	peak, _ := t.Peak()
	return t.accounts() * max(math.Ceil(peak/t.accounts()/queueMessages), 1)
}

// checkAccounts returns an error if more messages come than the accounts carry, each with one request to send it and those to handle it.
func (t *Trace) checkAccounts() error {
	peak, at := t.Peak()
	asks, carry := peak*(1+requestsPerDelivery), t.accounts()*accountRequests
	if asks <= carry {
		return nil
	}
	who := "one storage account carries"
	if len(t.Accounts) > 1 {
		who = fmt.Sprintf("%d storage accounts carry", len(t.Accounts))
	}
	return fmt.Errorf("%.0f messages a second come after %v: they are %.0f requests a second, and %s %.0f. Name at least %.0f accounts",
		peak, at, asks, who, carry, math.Ceil(asks/accountRequests))
}
