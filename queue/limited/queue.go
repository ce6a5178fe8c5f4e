package limited

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/queue"
)

// Wrap returns a queue that is held to the limit, together with its siblings. It is a [queue.Manager] if q
// is one.
func (l *Limit) Wrap(q queue.Queue) queue.Queue {
	wrapped := &limited{q, l}
	if inner, ok := q.(queue.Manager); ok {
		return &managed{wrapped, inner}
	}
	return wrapped
}

// limited is a queue that is held to a limit.
type limited struct {
	inner queue.Queue
	limit *Limit
}

var (
	_ queue.Queue   = (*limited)(nil)
	_ queue.Manager = (*managed)(nil)
)

// Unwrap returns the queue underneath, for errors that name its type.
func (q *limited) Unwrap() queue.Queue { return q.inner }

// Name implements [queue.Queue].
func (q *limited) Name() queue.Name { return q.inner.Name() }

// Sibling implements [queue.Queue].
func (q *limited) Sibling(suffix string) queue.Queue { return q.limit.Wrap(q.inner.Sibling(suffix)) }

// Enqueue implements [queue.Queue]. It waits for its turn.
func (q *limited) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if ctx.Err() != nil || queue.CheckEnqueue(o) != nil || queue.CheckText(text) != nil {
		return q.inner.Enqueue(ctx, text, o) // which refuses it
	}
	if err := q.limit.send(ctx, q.inner.Name()); err != nil {
		return queue.Message{}, err
	}
	sent, err := q.inner.Enqueue(ctx, text, o)
	if errors.Is(err, queue.ErrLimited) {
		q.limit.unused(1, 1)
	}
	return sent, err
}

// Dequeue implements [queue.Queue]. It does not wait: see the package comment.
func (q *limited) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	if ctx.Err() != nil || queue.CheckDequeue(n, visibility) != nil {
		return q.inner.Dequeue(ctx, n, visibility) // which refuses it
	}
	allowed, wait := q.limit.fetch(q, n)
	if wait > 0 {
		return nil, q.limit.heldBack("dequeue", q.inner.Name(), wait)
	}
	batch, err := q.inner.Dequeue(ctx, allowed, visibility)
	switch {
	case errors.Is(err, queue.ErrLimited):
		q.limit.unused(allowed, 1)
	case len(batch) < allowed:
		q.limit.unused(allowed-len(batch), 0)
	}
	return batch, err
}

// Peek implements [queue.Queue].
func (q *limited) Peek(ctx context.Context, n int) ([]queue.Message, error) {
	batch, err := q.inner.Peek(ctx, n)
	q.limit.charge(len(batch))
	return batch, err
}

// Update implements [queue.Queue].
func (q *limited) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	q.limit.charge(0)
	return q.inner.Update(ctx, l, text, visibility)
}

// Delete implements [queue.Queue].
func (q *limited) Delete(ctx context.Context, l queue.Lease) error {
	q.limit.charge(1)
	return q.inner.Delete(ctx, l)
}

// Properties implements [queue.Queue].
func (q *limited) Properties(ctx context.Context) (queue.Properties, error) {
	q.limit.charge(0)
	return q.inner.Properties(ctx)
}

// Create implements [queue.Queue].
func (q *limited) Create(ctx context.Context, metadata map[string]string) error {
	q.limit.charge(0)
	return q.inner.Create(ctx, metadata)
}

// managed is a [queue.Manager] that is held to a limit.
type managed struct {
	*limited
	manager queue.Manager
}

// SetMetadata implements [queue.Manager].
func (m *managed) SetMetadata(ctx context.Context, metadata map[string]string) error {
	m.limit.charge(0)
	return m.manager.SetMetadata(ctx, metadata)
}

// Clear implements [queue.Manager].
func (m *managed) Clear(ctx context.Context) error {
	m.limit.charge(0)
	return m.manager.Clear(ctx)
}

// Drop implements [queue.Manager].
func (m *managed) Drop(ctx context.Context) error {
	m.limit.charge(0)
	return m.manager.Drop(ctx)
}
