package producer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/queue"
)

// maxSkew is how far this machine's clock may be from the service's where a job counts as hidden.
const maxSkew = time.Minute

// Cancel deletes a job that was sent, if no worker has taken it yet: the usual use is a job with a
// delay. When it returns nil the message of sent is gone and no worker handles it. An error that
// matches [queue.ErrLeaseLost] means that it is too late: a worker has taken the job, whatever
// became of it, or it has expired. After one that matches [queue.ErrOutcomeUnknown] the message may be
// gone; after any other it is not. If sent says MaybeTwice there may be a second message, which Cancel
// does not reach.
//
// A program that cancels later keeps the lease. The id and the receipt are enough, except when the
// response to a delete is lost and the next one finds the message gone: only Until tells that the job
// was still hidden, for a minute at least by this machine's clock, and that no worker can have taken it.
// With a sender over several queues the Queue is needed too. Transient failures are retried within
// Options.Timeout.
func (p *Producer[T]) Cancel(ctx context.Context, sent Sent) error {
	if err := p.ready(); err != nil {
		return err
	}
	name := cmp.Or(sent.Queue, p.queue.Name())
	q, err := p.deleterOf(sent)
	if err != nil {
		return fmt.Errorf("cancel message %s of %v: %w", string(sent.ID), name, err)
	}
	if p.options.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.options.Timeout)
		defer cancel()
	}
	unknown, gone := false, false // whether a try may have deleted the message; whether a later one found it gone
	err = retry.Do(queue.WithCause(ctx, queue.CauseCancel), string(sent.ID), queue.Transient, func(ctx context.Context) error {
		err := q.Delete(ctx, sent.Lease)
		gone = unknown && errors.Is(err, queue.ErrMessageGone)
		unknown = unknown || errors.Is(err, queue.ErrOutcomeUnknown)
		return err
	})
	switch {
	case gone && time.Until(sent.Until) > maxSkew:
		return nil // the try without a response deleted it
	case gone:
		return fmt.Errorf("cancel message %s of %v: it is gone: a request without a response has deleted it, or a worker has handled it: %w",
			string(sent.ID), name, queue.ErrOutcomeUnknown)
	case errors.Is(err, queue.ErrLeaseLost):
		return fmt.Errorf("cancel message %s of %v: a worker has taken it, or it has expired: %w", string(sent.ID), name, err)
	case err != nil && unknown && !errors.Is(err, queue.ErrOutcomeUnknown):
		return fmt.Errorf("cancel message %s of %v: %w; an earlier request may have deleted it: %w", string(sent.ID), name, err, queue.ErrOutcomeUnknown)
	case err != nil:
		return fmt.Errorf("cancel message %s of %v: %w", string(sent.ID), name, err)
	}
	return nil
}

// deleterOf returns the queue that a message was sent to.
func (p *Producer[T]) deleterOf(sent Sent) (deleter, error) {
	one := queueNamed(p.queue, sent.Queue)
	if q, can := one.(deleter); can {
		return q, nil
	}
	_, several := p.queue.(finder)
	_, can := p.queue.(deleter)
	switch {
	case !several && !can:
		return nil, fmt.Errorf("a %T cannot delete", p.queue)
	case sent.Queue == (queue.Name{}):
		return nil, errors.New("it is in one of several queues: keep Sent.Queue, which says in which")
	}
	return nil, fmt.Errorf("the producer sends to %v, and has no queue of that name", p.queue.Name())
}
