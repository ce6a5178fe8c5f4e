package faultqueue

import "time"

// Options say how a [Queue] misbehaves. Nil and the zero value mean: not at all.
type Options struct {
	// Seed chooses which calls are hit. Defaults to 0, a seed like any other.
	Seed uint64

	// Faults are the rates of the operations named in it, such as "dequeue".
	// Defaults to none: Every holds for all.
	Faults map[Op]Rates

	// Every is the rates of the operations that Faults does not name.
	// Defaults to no faults.
	Every Rates

	// Latency is how long a faulty call takes. Defaults to 1 ms … 100 ms.
	Latency Range

	// SlowLatency is how long a [Slow] call takes. Defaults to 1 s … 20 s.
	SlowLatency Range

	// UsualLatency is how long a call without a fault takes. Defaults to no
	// time at all.
	UsualLatency Range

	// LateBy is how long after its caller's time is over a [Late] request arrives.
	// Defaults to 1 s … 30 s.
	LateBy Range

	// DieAfter lets the process die at a seeded one of its first so many
	// calls: that call is under way, and may have taken effect, and no further
	// one reaches the queue inside, unless it was on its way before ([Late]).
	// See [Queue.Died]. Which call that is depends on the order of all of them;
	// [Rates].Death does not. Defaults to 0, never.
	DieAfter int

	// Skew is how far the server's clock is ahead of ours, behind when
	// negative. It shows in Inserted, Expires and Until. Defaults to 0.
	Skew time.Duration

	// Missing is a time in which the queue and its siblings do not exist.
	// Defaults to never.
	Missing Window

	// Phases are spans of time with rates of their own: an outage, a poison queue that is
	// away, the calm at the end of a test. Of those that name the operation and that a call
	// begins in, the first counts. Defaults to none.
	Phases []Phase

	// Record keeps a trace of all calls, which grows with them. Defaults to
	// false.
	Record bool
}

// Rates are the shares of calls, 0 to 1, that each [Fault] hits. A call has at
// most one fault; where the sum is over 1 the later ones never happen. The zero
// value is no faults.
type Rates struct {
	Throttled   float64
	Unavailable float64
	LostRequest float64
	LostAnswer  float64
	Duplicate   float64
	Slow        float64
	Late        float64

	// Death is the share of calls in which the process dies. Half of them take
	// effect first.
	Death float64
}

// Range is a span of times, Min included and Max not. The zero value stands for
// the default of its option; where Max is not over Min it is always Min.
type Range struct{ Min, Max time.Duration }

// Window is a span of time that begins at a seeded instant within the first
// Within since [New], and lasts For. The zero value is none.
type Window struct{ Within, For time.Duration }

// Phase is a span of time, since [New], in which other rates hold. The zero value is
// none.
type Phase struct {
	// From is when it begins, negative for before [New], and For how long it lasts.
	From, For time.Duration

	// Queue is the name of the queue that it concerns, such as "jobs-poison". Defaults to
	// q and all its siblings.
	Queue string

	// Faults are the rates of the operations named in it. Those of the others stay as they
	// are. Defaults to none.
	Faults map[Op]Rates

	// Skew is added to [Options].Skew where the server acts within the phase: its clock is
	// set. Of several phases the first counts. Defaults to 0.
	Skew time.Duration
}

// covers tells whether that instant is in the phase, for the queue.
func (p *Phase) covers(queue string, at time.Duration) bool {
	return at >= p.From && at-p.From < p.For && (p.Queue == "" || p.Queue == queue)
}

func (r Range) or(otherwise Range) Range {
	if r == (Range{}) {
		return otherwise
	}
	return r
}

// at returns the point of the range that u, 0 to 1, stands for.
func (r Range) at(u float64) time.Duration {
	return r.Min + time.Duration(u*float64(max(r.Max-r.Min, 0)))
}
