package killtest

import (
	"context"
	"time"

	"github.com/millrace/millrace/queue"
)

// Queue is the queue of a process that is killed. Its requests are steps named "create", "enqueue",
// "dequeue", "update" and "delete".
type Queue struct {
	queue.Queue
	Killer *Killer
}

// Sibling returns a queue of the same process.
func (q *Queue) Sibling(suffix string) queue.Queue {
	return &Queue{q.Queue.Sibling(suffix), q.Killer}
}

// Properties is no step: it changes nothing.
func (q *Queue) Properties(ctx context.Context) (queue.Properties, error) {
	if q.Killer.Dead() {
		return queue.Properties{}, ErrKilled
	}
	return q.Queue.Properties(ctx)
}

// Create is a step.
func (q *Queue) Create(ctx context.Context, metadata map[string]string) error {
	return q.Killer.Step("create", func() error { return q.Queue.Create(ctx, metadata) })
}

// Enqueue is a step.
func (q *Queue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (m queue.Message, err error) {
	err = q.Killer.Step("enqueue", func() error { m, err = q.Queue.Enqueue(ctx, text, o); return err })
	return m, err
}

// Dequeue is a step only if it brings something: polls of an empty queue do nothing.
func (q *Queue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	if q.Killer.Dead() {
		return nil, ErrKilled
	}
	batch, err := q.Queue.Dequeue(ctx, n, visibility)
	if err == nil && len(batch) > 0 {
		err = q.Killer.Step("dequeue", func() error { return nil })
	}
	if err != nil {
		return nil, err
	}
	return batch, nil
}

// Update is a step.
func (q *Queue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (fresh queue.Lease, err error) {
	err = q.Killer.Step("update", func() error { fresh, err = q.Queue.Update(ctx, l, text, visibility); return err })
	return fresh, err
}

// Delete is a step.
func (q *Queue) Delete(ctx context.Context, l queue.Lease) error {
	return q.Killer.Step("delete", func() error { return q.Queue.Delete(ctx, l) })
}
