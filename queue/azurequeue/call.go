package azurequeue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/queue"
)

// errTryTimeout is the cause when Options.TryTimeout ends a request. It distinguishes that from
// the end of the caller's context.
var errTryTimeout = errors.New("no response in time")

// call sends one request unless bad is set. The error is a [*queue.Error].
func (q *Queue) call(ctx context.Context, op string, id queue.ID, receipt queue.Receipt, bad error, send func(context.Context) error) error {
	if bad == nil {
		bad = q.bad
	}
	if bad == nil {
		bad = q.account.call(ctx, op, receipt, send)
	}
	if bad != nil {
		return queue.Explain(bad, op, q.name, id)
	}
	return nil
}

// call sends one request with a context limited by the try time-out.
func (a *account) call(ctx context.Context, op string, receipt queue.Receipt, send func(context.Context) error) error {
	if ctx.Err() != nil {
		return &queue.Error{Detail: "nothing was sent", Err: contextError(ctx)}
	}
	try, cancel := context.WithTimeoutCause(ctx, a.timeout(ctx), errTryTimeout)
	defer cancel()
	if err := send(try); err != nil {
		return a.translate(ctx, try, op, receipt, err)
	}
	return nil
}

// maxDoublings is how often the time-out of a request doubles when it is repeated.
const maxDoublings = 2

// timeout returns the time-out of the next try: TryTimeout, or more for a request that is
// repeated. If the service responds, but later than that, the same time-out would fail each try.
func (a *account) timeout(ctx context.Context) time.Duration {
	longer := a.tryTimeout << min(retry.Repeats(ctx), maxDoublings)
	return max(a.tryTimeout, longer) // longer may have overflowed
}

// contextError returns the context's error, which callers match, joined with its cause.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}
