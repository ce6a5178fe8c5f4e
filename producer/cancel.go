package producer

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/queue"
)

// Cancel deletes a job that was sent, if no worker has taken it yet: the usual use is a job with a
// delay. When it returns nil the message of sent is gone and no worker handles it. An error that
// matches [queue.ErrLeaseLost] means that it is too late: a worker has taken the job, whatever
// became of it, or it has expired. If sent says MaybeTwice there may be a second message, which
// Cancel does not reach.
//
// A program that cancels later keeps the id and the receipt of the lease, nothing else is needed.
// Transient failures are retried within Options.Timeout.
func (p *Producer[T]) Cancel(ctx context.Context, sent Sent) error {
	if err := p.ready(); err != nil {
		return err
	}
	if p.options.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.options.Timeout)
		defer cancel()
	}
	unknown := false
	err := retry.Do(ctx, string(sent.ID), queue.Transient, func(ctx context.Context) error {
		err := p.queue.Delete(ctx, sent.Lease)
		if unknown && errors.Is(err, queue.ErrMessageGone) {
			return nil // the try without a response deleted it
		}
		unknown = unknown || errors.Is(err, queue.ErrOutcomeUnknown)
		return err
	})
	switch {
	case errors.Is(err, queue.ErrLeaseLost):
		return fmt.Errorf("cancel message %s of %v: a worker has taken it, or it has expired: %w", string(sent.ID), p.queue.Name(), err)
	case err != nil:
		return fmt.Errorf("cancel message %s of %v: %w", string(sent.ID), p.queue.Name(), err)
	}
	return nil
}
