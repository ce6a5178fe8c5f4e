package listener

import (
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// Observer receives events of a listener and its deliveries, for metrics and tracing. Every
// field may be nil. The functions are called inline and concurrently, so they must be fast and
// must not block. Their arguments may be kept, except the slice of Received. A panic in one is
// contained: see [HookError].
type Observer struct {
	// Polled is called after every dequeue, also a failed one.
	Polled func(Poll)

	// Received is called with the messages of a dequeue. The slice must not be changed or kept.
	Received func([]queue.Message)

	// Scaled is called with the number of loops that run now when it has changed.
	Scaled func(q queue.Name, loops int)

	// Paused is called when a pause begins or ends, and when who pauses the listener has changed. By
	// is [NotPaused], the empty text, when it has ended.
	Paused func(q queue.Name, by PausedBy)

	// Started is called before the handler of a delivery runs.
	Started func(Delivery)

	// Finished is called with the duration and the error when the handler has returned.
	Finished func(Delivery, time.Duration, error)

	// Renewed is called with the visibility after a renewal; the error is not nil if it failed.
	Renewed func(Delivery, time.Duration, error)

	// Lost is called when the lease is no longer ours, with [ErrLeaseLost] or
	// [ErrLeaseExpired].
	Lost func(Delivery, error)

	// Settled is called with the outcome and the duration of the settlement requests.
	Settled func(Delivery, Outcome, time.Duration)

	// Poisoned is called with the reason and the error when the message was moved to the poison
	// queue or is kept hidden. Settled is called too.
	Poisoned func(Delivery, poison.Reason, error)
}

// dispatcher returns the part that package dispatcher calls.
func (o *Observer) dispatcher() dispatcher.Observer {
	return dispatcher.Observer{
		Started: o.Started, Finished: o.Finished, Renewed: o.Renewed,
		Lost: o.Lost, Settled: o.Settled, Poisoned: o.Poisoned,
	}
}

// Poll describes one dequeue.
type Poll struct {
	Queue queue.Name
	Asked int           // messages requested
	Got   int           // messages returned
	Took  time.Duration // duration of the request
	Err   error         // nil if it succeeded
}
