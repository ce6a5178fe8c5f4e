package faultqueue

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/queue"
)

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

func (o *Options) validate() error {
	if err := o.Every.validate("Options.Every"); err != nil {
		return err
	}
	if err := validateFaults("Options.Faults", o.Faults); err != nil {
		return err
	}
	for i, p := range o.Phases {
		if err := validateFaults(fmt.Sprintf("Options.Phases[%d].Faults", i), p.Faults); err != nil {
			return err
		}
	}
	return nil
}

func validateFaults(field string, faults map[Op]Rates) error {
	for op, rates := range faults {
		field := fmt.Sprintf("%s[%q]", field, op)
		if !slices.Contains(operations, op) {
			return fmt.Errorf("%s: unknown operation: use one of %q", field, operations)
		}
		if err := rates.validate(field); err != nil {
			return err
		}
	}
	return nil
}

func (r Rates) validate(field string) error {
	for _, one := range r.byFault() {
		if !(one.rate >= 0 && one.rate <= 1) { // NaN is neither
			return fmt.Errorf("%s: the rate of %q is %v: give a number from 0 to 1", field, one.fault, one.rate)
		}
	}
	return nil
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

// Op is an operation, under the name that errors use.
type Op string

// The operations.
const (
	Enqueue     Op = "enqueue"
	Dequeue     Op = "dequeue"
	Peek        Op = "peek"
	Update      Op = "update"
	Delete      Op = "delete"
	Properties  Op = "properties"
	Create      Op = "create"
	SetMetadata Op = "set metadata"
	Clear       Op = "clear"
	Drop        Op = "drop"
)

var operations = []Op{Enqueue, Dequeue, Peek, Update, Delete, Properties, Create, SetMetadata, Clear, Drop}

// Fault is what goes wrong with a call. The zero value is no fault.
type Fault string

// The faults.
const (
	// Throttled: the server is busy and does not act. The error is [queue.ErrThrottled].
	Throttled Fault = "throttled"

	// Unavailable: the server fails and does not act. The error is [queue.ErrUnavailable].
	Unavailable Fault = "unavailable"

	// LostRequest: the request does not arrive. The error is [queue.ErrOutcomeUnknown].
	LostRequest Fault = "lost request"

	// LostResponse: the server acts, but its response does not arrive. The error is
	// [queue.ErrOutcomeUnknown]. A dequeued batch stays hidden.
	LostResponse Fault = "lost response"

	// Duplicate: a proxy sends the request twice, the second time after the server has acted on
	// the first, and the caller gets the second response. An enqueue makes two messages; a
	// dequeue hides a batch that nobody received; an update or a delete that took effect fails
	// with [queue.ErrReceiptMismatch] or [queue.ErrMessageGone].
	Duplicate Fault = "duplicate"

	// Slow: the call succeeds but takes long.
	Slow Fault = "slow"

	// Late: the request arrives after its caller has given up with [queue.ErrOutcomeUnknown], and
	// the server acts on it then, even if the process has died. For example, an enqueue that was
	// sent again makes two messages. See [Options].LateBy and [Queue.Wait].
	Late Fault = "late"

	// Arrival is not a fault but the second half of [Late] in a trace: the request has arrived
	// and the server has acted.
	Arrival Fault = "arrival"

	// Missing: the queue does not exist for a while. The error is [queue.ErrQueueMissing].
	Missing Fault = "missing"

	// Death: the process dies while the call is in flight, or is already dead.
	Death Fault = "death"
)

type faultRate struct {
	fault Fault
	rate  float64
}

// byFault returns the rates in the order in which [Rates.choose] applies them.
func (r Rates) byFault() [8]faultRate {
	return [...]faultRate{
		{Throttled, r.Throttled}, {Unavailable, r.Unavailable}, {LostRequest, r.LostRequest},
		{LostResponse, r.LostResponse}, {Duplicate, r.Duplicate}, {Slow, r.Slow}, {Late, r.Late}, {Death, r.Death},
	}
}

func (r Rates) choose(u float64) Fault {
	for _, c := range r.byFault() {
		if u < c.rate {
			return c.fault
		}
		u -= c.rate
	}
	return ""
}

// asError returns the error of a fault as the service would report it, or nil.
func (f Fault) asError() *queue.Error {
	switch f {
	case Throttled:
		return &queue.Error{Kind: queue.ErrThrottled, Status: 503, Code: "ServerBusy", RequestID: "injected"}
	case Unavailable:
		return &queue.Error{Kind: queue.ErrUnavailable, Status: 500, Code: "InternalError", RequestID: "injected"}
	case LostRequest, LostResponse:
		return &queue.Error{Kind: queue.ErrOutcomeUnknown, Detail: "injected: connection reset"}
	case Late:
		return &queue.Error{Kind: queue.ErrOutcomeUnknown, Detail: "injected: no response in time"}
	case Missing:
		return &queue.Error{Kind: queue.ErrQueueMissing, Status: 404, Code: "QueueNotFound", RequestID: "injected"}
	case Death:
		return &queue.Error{Kind: queue.ErrOutcomeUnknown, Err: ErrDead}
	}
	return nil
}
