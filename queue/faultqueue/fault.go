package faultqueue

import "github.com/millrace/millrace/queue"

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

func (r Rates) choose(u float64) Fault {
	for _, c := range []struct {
		rate  float64
		fault Fault
	}{
		{r.Throttled, Throttled}, {r.Unavailable, Unavailable}, {r.LostRequest, LostRequest},
		{r.LostResponse, LostResponse}, {r.Duplicate, Duplicate}, {r.Slow, Slow}, {r.Late, Late}, {r.Death, Death},
	} {
		if u < c.rate {
			return c.fault
		}
		u -= max(c.rate, 0)
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
