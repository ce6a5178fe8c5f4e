package slots

import (
	"context"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
)

// afterLoss is how long a message waits whose handler the limit has stopped.
const afterLoss = time.Second

// OfFleet returns the interceptor for the listeners whose queues a limits.ConcurrencyLimit wraps. Pass
// the methods Begin and End of that limit. The interceptor should be the first one of a listener, so
// that the time of the others counts. If the limit no longer allows a handler, its context ends with
// the cause limits.ErrTokenLost, and its message comes again after a second. An error is then not an
// attempt, unless it asks for something, such as [dispatcher.Discard]. The interceptor may serve any
// number of listeners.
func OfFleet(
	begin func(ctx context.Context, name queue.Name, id queue.ID, n int64, group bool) (context.Context, error),
	end func(handler context.Context) (stopped bool),
) dispatcher.Interceptor {
	return func(ctx context.Context, d dispatcher.Delivery, next func(context.Context) error) (err error) {
		held, refused := begin(ctx, d.Queue, d.ID, d.DequeueCount, d.Items > 0)
		if refused != nil {
			return dispatcher.NotRun(afterLoss, refused)
		}
		defer func() { // also after a panic
			if end(held) && err != nil && !dispatcher.ResultOf(err).Explicit {
				err = dispatcher.Snooze(afterLoss)
			}
		}()
		return next(held)
	}
}
