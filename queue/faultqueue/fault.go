package faultqueue

import "github.com/millrace/millrace/queue"

// Op is an operation, under the name that errors give it.
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

// Fault is what goes wrong with one call. The zero value is nothing.
type Fault string

// The faults.
const (
	// Throttled: the server is busy and does not act: [queue.ErrThrottled].
	Throttled Fault = "throttled"

	// Unavailable: the server fails and does not act: [queue.ErrUnavailable].
	Unavailable Fault = "unavailable"

	// LostRequest: the request never arrives: [queue.ErrOutcomeUnknown].
	LostRequest Fault = "lost request"

	// LostAnswer: the server acts, its answer never arrives:
	// [queue.ErrOutcomeUnknown]. A dequeued batch is hidden and nobody has it.
	LostAnswer Fault = "lost answer"

	// Duplicate: something in between sends the request twice, the second time a
	// moment after the server has acted on the first, and the second answer is the
	// one that arrives. An enqueue makes two messages; a dequeue hides a batch that
	// nobody has; an update or a delete that took effect is answered with
	// [queue.ErrReceiptMismatch] or [queue.ErrMessageGone].
	Duplicate Fault = "duplicate"

	// Slow: all goes well, but it takes long.
	Slow Fault = "slow"

	// Late: the request is on its way for so long that its caller gives up,
	// [queue.ErrOutcomeUnknown], and the server acts on it then: on an enqueue that
	// was sent again meanwhile, say. Not even the death of the process holds it up.
	// See [Options].LateBy and [Queue.Wait].
	Late Fault = "late"

	// Arrival is not what goes wrong with a call but the other half of [Late] in a
	// trace: the request has arrived and the server has acted.
	Arrival Fault = "arrival"

	// Missing: the queue is away: [queue.ErrQueueMissing].
	Missing Fault = "missing"

	// Death: the process dies while the call is under way, or is dead already.
	Death Fault = "death"
)

// choose returns the fault that u, 0 to 1, stands for.
func (r Rates) choose(u float64) Fault {
	for _, c := range []struct {
		rate  float64
		fault Fault
	}{
		{r.Throttled, Throttled}, {r.Unavailable, Unavailable}, {r.LostRequest, LostRequest},
		{r.LostAnswer, LostAnswer}, {r.Duplicate, Duplicate}, {r.Slow, Slow}, {r.Late, Late}, {r.Death, Death},
	} {
		if u < c.rate {
			return c.fault
		}
		u -= max(c.rate, 0)
	}
	return ""
}

// failure is the error a fault shows to the caller, as the service would word
// it; nil for a fault that shows none.
func (f Fault) asError() *queue.Error {
	switch f {
	case Throttled:
		return &queue.Error{Kind: queue.ErrThrottled, Status: 503, Code: "ServerBusy", RequestID: "injected"}
	case Unavailable:
		return &queue.Error{Kind: queue.ErrUnavailable, Status: 500, Code: "InternalError", RequestID: "injected"}
	case LostRequest, LostAnswer:
		return &queue.Error{Kind: queue.ErrOutcomeUnknown, Detail: "injected: connection reset"}
	case Late:
		return &queue.Error{Kind: queue.ErrOutcomeUnknown, Detail: "injected: no answer in time"}
	case Missing:
		return &queue.Error{Kind: queue.ErrQueueMissing, Status: 404, Code: "QueueNotFound", RequestID: "injected"}
	case Death:
		return &queue.Error{Kind: queue.ErrOutcomeUnknown, Err: ErrDead}
	}
	return nil
}
