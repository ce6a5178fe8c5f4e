package listener

import (
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// Observer is told what a listener does and what happens to its deliveries: the seam that
// metrics and tracing hang on. Every field may be nil. The functions are called from many
// goroutines at once: they must be quick and must not block. What is passed to them may be
// kept, but for the slice of Received. A panic in one stops nothing: see [HookError].
type Observer struct {
	// Polled: a dequeue was answered, or failed.
	Polled func(Poll)

	// Received: a dequeue brought these messages. The slice must not be changed or kept.
	Received func([]queue.Message)

	// Scaled: the number of loops has changed.
	Scaled func(Scale)

	// Started: the handler of a delivery is about to run.
	Started func(Delivery)

	// Finished: its handler has returned, after so long, with this error.
	Finished func(Delivery, time.Duration, error)

	// Renewed: its lease was renewed for so long; or could not be, with this error.
	Renewed func(Delivery, time.Duration, error)

	// Lost: its lease is no longer ours; the cause is [ErrLeaseLost] or
	// [ErrLeaseExpired].
	Lost func(Delivery, error)

	// Settled: this became of it, and the requests for that took so long.
	Settled func(Delivery, Outcome, time.Duration)

	// Poisoned: it was moved to the poison queue, or is kept hidden, for this reason.
	// Settled is called too.
	Poisoned func(Delivery, poison.Reason, error)
}

// dispatcher returns the part that package dispatcher calls.
func (o *Observer) dispatcher() dispatcher.Observer {
	return dispatcher.Observer{
		Started: o.Started, Finished: o.Finished, Renewed: o.Renewed,
		Lost: o.Lost, Settled: o.Settled, Poisoned: o.Poisoned,
	}
}

// Poll is one dequeue.
type Poll struct {
	Queue queue.Name
	Asked int           // for how many messages
	Got   int           // how many there were
	Took  time.Duration // until the answer
	Err   error         // nil when it was answered
}

// Scale is a change of the number of loops.
type Scale struct {
	Queue queue.Name
	Loops int // how many run now
}
