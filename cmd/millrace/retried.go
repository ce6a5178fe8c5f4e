package main

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/queue"
)

// patience is how long a request is repeated. A person or a script is waiting.
const patience = 30 * time.Second

// retried repeats a request that may be repeated without harm, until it succeeds, or fails for a
// reason that waiting does not mend. An unreachable server is such a reason: somebody has to start
// it. After stop, the context of the first signal, no request is repeated.
func retried(stop, ctx context.Context, key string, send func(context.Context) error) error {
	begin := time.Now()
	err := retry.Do(stop, key, func(err error) bool {
		return queue.Transient(err) && !unreachable(err) && time.Since(begin) < patience
	}, func(try context.Context) error {
		return send(retry.Repeated(ctx, retry.Repeats(try)))
	})
	if stop.Err() != nil && queue.Transient(err) && !errors.Is(err, queue.ErrOutcomeUnknown) {
		return context.Cause(stop) // nothing has happened
	}
	return err
}

// unreachable reports whether the request did not reach a server.
func unreachable(err error) bool {
	known := (*queue.Error)(nil)
	return errors.Is(err, queue.ErrUnavailable) && errors.As(err, &known) && known.Status == 0
}

// retriedAccount repeats requests that may be repeated, for its queues too.
type retriedAccount struct {
	queue.Account
	stop context.Context
}

// List implements [queue.Account].
func (a retriedAccount) List(ctx context.Context, o *queue.ListOptions) (page queue.Page, err error) {
	err = retried(a.stop, ctx, a.Name(), func(ctx context.Context) (err error) {
		page, err = a.Account.List(ctx, o)
		return err
	})
	return page, err
}

// Open implements [queue.Account].
func (a retriedAccount) Open(name string) (queue.Manager, error) {
	q, err := a.Account.Open(name)
	if err != nil {
		return nil, err
	}
	return retriedQueue{q, a.stop}, nil
}

// retriedQueue repeats requests that may be repeated. It leaves requests that take, settle, or put
// messages to the packages that send them, and so it does with SetMetadata: queuemetadata.Change reads
// the metadata again before it repeats a write.
type retriedQueue struct {
	queue.Manager
	stop context.Context
}

func (q retriedQueue) retried(ctx context.Context, send func(context.Context) error) error {
	return retried(q.stop, ctx, q.Name().String(), send)
}

// Properties implements [queue.Queue].
func (q retriedQueue) Properties(ctx context.Context) (p queue.Properties, err error) {
	err = q.retried(ctx, func(ctx context.Context) (err error) {
		p, err = q.Manager.Properties(ctx)
		return err
	})
	return p, err
}

// Peek implements [queue.Queue].
func (q retriedQueue) Peek(ctx context.Context, n int) (messages []queue.Message, err error) {
	err = q.retried(ctx, func(ctx context.Context) (err error) {
		messages, err = q.Manager.Peek(ctx, n)
		return err
	})
	return messages, err
}

// Create implements [queue.Queue].
func (q retriedQueue) Create(ctx context.Context, metadata map[string]string) error {
	return q.retried(ctx, func(ctx context.Context) error { return q.Manager.Create(ctx, metadata) })
}

// Drop implements [queue.Manager]. If a response was lost, a later one may say that the queue is
// gone.
func (q retriedQueue) Drop(ctx context.Context) error {
	lost := false
	return q.retried(ctx, func(ctx context.Context) error {
		err := q.Manager.Drop(ctx)
		if lost && (errors.Is(err, queue.ErrQueueMissing) || errors.Is(err, queue.ErrQueueBeingDeleted)) {
			return nil
		}
		lost = lost || errors.Is(err, queue.ErrOutcomeUnknown)
		return err
	})
}

// Clear implements [queue.Manager]. It repeats only requests that the service refused: see
// [task.clear] about the others.
func (q retriedQueue) Clear(ctx context.Context) error {
	var unknown error
	err := q.retried(ctx, func(context.Context) error { // ctx knows how often it was sent
		err := q.Manager.Clear(ctx)
		if errors.Is(err, queue.ErrOutcomeUnknown) {
			unknown, err = err, nil
		}
		return err
	})
	if unknown != nil {
		return unknown
	}
	return err
}

// Sibling implements [queue.Queue].
func (q retriedQueue) Sibling(suffix string) queue.Queue {
	return retriedQueue{q.Manager.Sibling(suffix).(queue.Manager), q.stop} // as the siblings of every Manager are
}
