package slots

import (
	"context"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
)

// Fleet limits the handlers of all processes together: a ConcurrencyLimit of package queue/limits.
type Fleet interface {
	// Begin notes that the handler of the n-th delivery of a message starts, and returns its context. It returns an error if
	// the handler must not start.
	Begin(ctx context.Context, name queue.Name, id queue.ID, n int64, group bool) (context.Context, error)
	// End notes that the handler has returned, and reports whether its context had ended because the limit no longer allowed it.
	End(handler context.Context) (stopped bool)
}

// afterLoss is how long a message waits whose handler the limit has stopped.
const afterLoss = time.Second

// OfFleet returns the interceptor for the listeners whose queues f wraps. It should be the first interceptor of a
// listener, so that the time of the others counts. If the limit no longer allows a handler, its context ends with the
// cause limits.ErrTokenLost, and its message returns after a second. An error is then not an attempt, unless it asks for
// something, such as [dispatcher.Discard]. The interceptor may serve any number of listeners.
func OfFleet(f Fleet) dispatcher.Interceptor {
	return func(ctx context.Context, d dispatcher.Delivery, next func(context.Context) error) (err error) {
		held, refused := f.Begin(ctx, d.Queue, d.ID, d.DequeueCount, d.Items > 0)
		if refused != nil {
			return dispatcher.NotRun(afterLoss, refused)
		}
		defer func() { // also after a panic
			if f.End(held) && err != nil && !dispatcher.ResultOf(err).Explicit {
				err = dispatcher.Snooze(afterLoss)
			}
		}()
		return next(held)
	}
}
