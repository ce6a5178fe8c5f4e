package tokens

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/queue"
)

// Wrap returns a queue whose dequeues are held to the limit. All else goes to q unchanged. It is a
// [queue.Manager] if q is one. Several queues may share the limit; siblings, such as a poison queue, have none.
func (l *RateLimit) Wrap(q queue.Queue) queue.Queue {
	wrapped := &rated{Queue: q, limit: l}
	if inner, ok := q.(queue.Manager); ok {
		return &ratedManager{Manager: inner, rated: wrapped}
	}
	return wrapped
}

// rated is a queue whose dequeues are held to a rate.
type rated struct {
	queue.Queue
	limit *RateLimit
	idle  atomic.Bool // the last dequeue has found nothing
}

// ratedManager is a [queue.Manager] whose dequeues are held to a rate.
type ratedManager struct {
	queue.Manager
	rated *rated
}

// Unwrap returns the queue underneath, for errors that name its type.
func (q *rated) Unwrap() queue.Queue { return q.Queue }

// Unwrap returns the queue underneath, for errors that name its type.
func (m *ratedManager) Unwrap() queue.Queue { return m.Manager }

// Dequeue implements [queue.Queue].
func (m *ratedManager) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	return m.rated.Dequeue(ctx, n, visibility)
}

// Dequeue implements [queue.Queue]. See the package comment.
func (q *rated) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	if ctx.Err() != nil || queue.CheckDequeue(n, visibility) != nil {
		return q.Queue.Dequeue(ctx, n, visibility) // which refuses it
	}
	if q.idle.Load() && !q.limit.holds() { // looking costs no token
		found, err := q.Queue.Peek(ctx, 1)
		if err != nil || len(found) == 0 {
			return nil, err
		}
		q.idle.Store(false)
	}
	shares, wait, err := q.limit.reserve(ctx, n)
	switch {
	case err != nil:
		return nil, q.limit.source.explain(err, q.Name())
	case len(shares) == 0:
		return nil, &queue.LimitedError{Op: "dequeue", Queue: q.Name(), After: wait, Limit: q.limit.source.limit}
	}
	batch, err := q.Queue.Dequeue(ctx, jobsOf(shares), visibility)
	if len(batch) > 0 && time.Now().After(deadlineOf(shares)) {
		giveBack(ctx, q.Queue, batch)
		return nil, q.tooLate(len(batch))
	}
	q.limit.putBack(shares, len(batch))
	if err == nil {
		q.idle.Store(len(batch) == 0)
		if len(batch) == 0 {
			q.limit.release(ctx)
		}
	}
	return batch, err
}

// tooLate is the error for messages that came when their tokens could no longer be spent.
func (q *rated) tooLate(n int) error {
	return &queue.Error{
		Op: "dequeue", Queue: q.Name(), Kind: queue.ErrOutcomeUnknown,
		Detail: fmt.Sprintf("the response took so long that the tokens of the limit «%s» could no longer be spent; its %d messages were given back", q.limit.source.limit, n),
	}
}
