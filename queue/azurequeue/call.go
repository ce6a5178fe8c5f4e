package azurequeue

import (
	"context"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/queue"
)

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
		return &queue.Error{Detail: "nothing was sent", Err: azurestorage.ContextError(ctx)}
	}
	try, cancel := context.WithTimeoutCause(ctx, azurestorage.TryTimeout(ctx, a.tryTimeout), azurestorage.ErrTryTimeout)
	defer cancel()
	if err := send(try); err != nil {
		return a.translate(ctx, try, op, receipt, err)
	}
	return nil
}
