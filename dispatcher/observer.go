package dispatcher

import (
	"time"

	"github.com/millrace/millrace/poison"
)

// Observer receives events of deliveries, for metrics and tracing. Every field may be nil. The
// functions are called inline and concurrently, so they must be fast and must not block. Their
// arguments may be kept. A panic in one is contained: see [HookError].
type Observer struct {
	// Started is called before the handler runs.
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
