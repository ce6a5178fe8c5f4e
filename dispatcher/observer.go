package dispatcher

import (
	"time"

	"github.com/millrace/millrace/poison"
)

// Observer is told what happens to deliveries: the seam that metrics and tracing hang
// on. Every field may be nil. The functions are called on the way of the messages, from
// many goroutines at once: they must be quick and must not block. What is passed to
// them may be kept. A panic in one stops nothing: see [HookError].
type Observer struct {
	// Started: its handler is about to run.
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
