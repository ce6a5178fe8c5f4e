package faultqueue

import "time"

// Options say which faults a [Queue] injects. Nil and the zero value mean none.
type Options struct {
	// Seed determines which calls have faults. Defaults to 0, which is a seed like any other.
	Seed uint64

	// Faults are the rates by operation, such as "dequeue". Defaults to nil: Every applies to all
	// operations.
	Faults map[Op]Rates

	// Every are the rates of the operations that Faults does not name. Defaults to no faults.
	Every Rates

	// Latency is how long a call with a fault takes. Defaults to 1 ms … 100 ms.
	Latency Range

	// SlowLatency is how long a [Slow] call takes. Defaults to 1 s … 20 s.
	SlowLatency Range

	// UsualLatency is how long a call without a fault takes. Defaults to no time.
	UsualLatency Range

	// LateBy is how long after its caller has given up a [Late] request arrives. Defaults to 1 s
	// … 30 s.
	LateBy Range

	// DieAfter lets the process die at a seeded one of its first DieAfter calls. That call may
	// take effect; no later one reaches the inner queue, except [Late] requests already in
	// flight. See [Queue.Died]. Which call it is depends on the order of all calls; with
	// [Rates].Death it does not. Defaults to 0, never.
	DieAfter int

	// Skew is how far the server's clock is ahead of ours; negative means behind. It shows in
	// Inserted, Expires and Until. Defaults to 0.
	Skew time.Duration

	// Missing is a time during which the queue and its siblings do not exist. Defaults to none.
	Missing Window

	// Phases are times with rates of their own, such as an outage or a calm end of a test. For a
	// call, the first phase counts that names its operation and covers its start. Defaults to
	// none.
	Phases []Phase

	// Record keeps a trace of all calls in memory. Defaults to false.
	Record bool
}

// Rates are the shares of calls, 0 to 1, with each [Fault]. A call has at most one fault; if the
// sum exceeds 1 the later ones never happen. The zero value is no faults.
type Rates struct {
	Throttled    float64
	Unavailable  float64
	LostRequest  float64
	LostResponse float64
	Duplicate    float64
	Slow         float64
	Late         float64

	// Death is the share of calls in which the process dies. Half of those take effect first.
	Death float64
}

// Range is a range of durations, Min included and Max excluded. The zero value means the option's
// default. If Max is not above Min, the duration is always Min.
type Range struct{ Min, Max time.Duration }

// Window is a time that begins at a seeded instant less than Within after [New] and lasts For.
// The zero value is none.
type Window struct{ Within, For time.Duration }

// Phase is a time after [New] with other rates. The zero value is none.
type Phase struct {
	// From is when it begins, negative for before [New]; For is how long it lasts.
	From, For time.Duration

	// Queue is the name of the queue that it applies to, such as "jobs-poison". Defaults to q and
	// all its siblings.
	Queue string

	// Faults are the rates by operation. Other operations keep theirs. Defaults to nil.
	Faults map[Op]Rates

	// Skew is added to [Options].Skew for requests that the server handles within the phase. Of
	// several phases the first counts. Defaults to 0.
	Skew time.Duration
}

func (p *Phase) covers(queue string, at time.Duration) bool {
	return at >= p.From && at-p.From < p.For && (p.Queue == "" || p.Queue == queue)
}

func (r Range) or(otherwise Range) Range {
	if r == (Range{}) {
		return otherwise
	}
	return r
}

func (r Range) at(u float64) time.Duration {
	return r.Min + time.Duration(u*float64(max(r.Max-r.Min, 0)))
}
