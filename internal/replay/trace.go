package replay

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
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

	// Handlings is how long each message occupies a slot that begins in a step, for all steps: all messages that begin in the same step take
	// the same time. Nil means Handling at all times.
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

// Size is how large a generated trace is.
type Size struct {
	// Name comes after that of the trace.
	Name string

	// Peak is about the most messages a second that come. At the peak about four fifths of Max are needed.
	Peak float64

	// Handling, Slots, Start, Max and Accounts are those of the trace. Start varies by half.
	Handling time.Duration
	Slots    int
	Start    time.Duration
	Max      int
	Accounts int
}

// Small returns the size of a team's service: 800 messages a second and 20 instances, the quota of a new subscription. An instance takes 45 s to start.
func Small() Size {
	return Size{Name: "small", Peak: 800, Handling: time.Second, Slots: 64, Start: 45 * time.Second, Max: 20, Accounts: 1}
}

// Large returns the size of a platform: 100,000 messages a second, 10,000 instances and 16 storage accounts. An instance takes 90 s to start.
func Large() Size {
	return Size{Name: "large", Peak: 100_000, Handling: 4 * time.Second, Slots: 64, Start: 90 * time.Second, Max: 10_000, Accounts: 16}
}

const generatedStep = 10 * time.Second

// The SLAs of generated traces: of jobs that somebody waits for, and of jobs that come in batches.
const (
	soon  = 2 * time.Minute
	later = 10 * time.Minute
)

// Generated returns all generated traces of a size, by a seed: [Steady], [Wave], [Burst], [Flash], [Leak], [Storm] and [Billing].
func Generated(s Size, seed uint64) []Trace {
	return []Trace{Steady(s, seed), Wave(s, seed), Burst(s, seed), Flash(s, seed), Leak(s, seed), Storm(s, seed), Billing(s, seed)}
}

// generate returns a trace whose rate a function of the time says, in messages a second. Arrivals vary around it as those of many independent
// senders do, and by a few percent for minutes.
func (s Size) generate(name string, length, sla time.Duration, seed uint64, rate func(at time.Duration) float64) Trace {
	t := Trace{
		Name: name + ", " + s.Name, Step: generatedStep, Handling: s.Handling, Slots: s.Slots, Start: s.Start, Vary: 0.5,
		SLA: sla, Max: s.Max, Seed: seed,
	}
	for i := range s.Accounts {
		if s.Accounts > 1 {
			t.Accounts = append(t.Accounts, fmt.Sprintf("account%02d", i+1))
		}
	}
	random := rand.New(rand.NewPCG(seed, uint64(len(name))))
	drift := 0.0
	for at := time.Duration(0); at < length; at += generatedStep {
		drift = 0.95*drift + 0.01*random.NormFloat64()
		mean := rate(at) * generatedStep.Seconds() * (1 + drift)
		n := max(mean+math.Sqrt(max(mean, 0))*random.NormFloat64(), 0)
		t.Arrivals = append(t.Arrivals, math.Round(min(n, s.Peak*generatedStep.Seconds())))
	}
	t.Initial = min(max(ceil(t.Arrivals[0]/generatedStep.Seconds()*s.Handling.Seconds()/float64(s.Slots)/0.8), 0), s.Max)
	return t
}

// Steady returns a trace of six hours at half of the peak.
func Steady(s Size, seed uint64) Trace {
	return s.generate("steady", 6*time.Hour, soon, seed, func(time.Duration) float64 { return s.Peak / 2 })
}

// Wave returns a trace of three days with a peak each afternoon and a tenth of it at night.
func Wave(s Size, seed uint64) Trace {
	return s.generate("daily wave", 72*time.Hour, soon, seed, func(at time.Duration) float64 {
		hour := math.Mod(at.Hours(), 24)
		return 0.95 * s.Peak * (0.1 + 0.9*math.Pow(0.5-0.5*math.Cos(2*math.Pi*(hour-3)/24), 2))
	})
}

// spans are times in which messages come.
type spans []span

type span struct{ from, to time.Duration }

// rate returns the rate within the spans, and none between them.
func (all spans) rate(at time.Duration, within float64) float64 {
	if slices.ContainsFunc(all, func(s span) bool { return at >= s.from && at < s.to }) {
		return within
	}
	return 0
}

// Burst returns a trace of twelve hours of silence but for six bursts out of nothing: each is as much as comes at the peak in one to six
// minutes, at that rate. Nothing works when it begins.
func Burst(s Size, seed uint64) Trace {
	random := rand.New(rand.NewPCG(seed, 1))
	var bursts spans
	for i := range 6 {
		from := time.Duration(2*i)*time.Hour + time.Duration(random.IntN(360))*generatedStep
		bursts = append(bursts, span{from, from + time.Duration(6+random.IntN(31))*generatedStep})
	}
	return s.generate("burst from zero", 12*time.Hour, later, seed, func(at time.Duration) float64 {
		return bursts.rate(at, s.Peak)
	})
}

// Flash returns a trace of six hours at a tenth of the peak with two flash crowds: within half a minute everybody comes, and half of them have gone
// after twenty minutes.
func Flash(s Size, seed uint64) Trace {
	random := rand.New(rand.NewPCG(seed, 2))
	crowds := []time.Duration{
		time.Hour + time.Duration(random.IntN(180))*generatedStep, 3*time.Hour + time.Duration(random.IntN(360))*generatedStep,
	}
	return s.generate("flash crowd", 6*time.Hour, soon, seed, func(at time.Duration) float64 {
		rate := 0.1 * s.Peak
		for _, c := range crowds {
			if at >= c {
				since := (at - c).Minutes()
				rate += 0.85 * s.Peak * min((since+0.2)/0.5, 1) * math.Exp2(-since/20)
			}
		}
		return rate
	})
}

// Leak returns a trace of eight hours at three tenths of the peak, in which handlers take longer and longer, to three times as long after seven
// hours; then somebody restarts what they depend on.
func Leak(s Size, seed uint64) Trace {
	t := s.generate("slow leak", 8*time.Hour, soon, seed, func(time.Duration) float64 { return 0.28 * s.Peak })
	for i := range t.Arrivals {
		factor := 1.0
		if at := time.Duration(i) * t.Step; at < 7*time.Hour {
			factor = 1 + 2*at.Hours()/7
		}
		t.Handlings = append(t.Handlings, time.Duration(float64(s.Handling)*factor))
	}
	return t
}

// Storm returns a trace of six hours at three tenths of the peak, in which for an hour two messages in five are poison. Each of those is handled
// five times, so that handlers have more than two and a half times as much to do.
func Storm(s Size, seed uint64) Trace {
	t := s.generate("poison storm", 6*time.Hour, soon, seed, func(time.Duration) float64 { return 0.3 * s.Peak })
	t.Poison = make([]float64, len(t.Arrivals))
	for i, n := range t.Arrivals {
		if at := time.Duration(i) * t.Step; at >= 2*time.Hour && at < 3*time.Hour {
			t.Poison[i] = math.Round(0.4 * n)
		}
	}
	return t
}

// Billing returns the day of a billing system, from noon to noon: several million records come in sixteen batches by night, each of tens to
// hundreds of thousands, as fast as the line carries them, and a small one of some thousands each hour by day. That is the small size; the large one
// is that of many such companies.
func Billing(s Size, seed uint64) Trace {
	random := rand.New(rand.NewPCG(seed, 3))
	var batches spans
	for hour := range 24 {
		if night := hour >= 9 && hour < 17; night {
			for half := range 2 {
				from := time.Duration(hour)*time.Hour + time.Duration(half)*30*time.Minute + time.Duration(random.IntN(90))*generatedStep
				batches = append(batches, span{from, from + time.Duration(9+random.IntN(52))*generatedStep})
			}
			continue
		}
		from := time.Duration(hour)*time.Hour + time.Duration(random.IntN(340))*generatedStep
		batches = append(batches, span{from, from + generatedStep})
	}
	return s.generate("billing day", 24*time.Hour, later, seed, func(at time.Duration) float64 {
		return batches.rate(at, 0.95*s.Peak)
	})
}
