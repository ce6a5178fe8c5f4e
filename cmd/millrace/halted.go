package main

import (
	"context"
	"time"

	"github.com/millrace/millrace/queue"
)

// haltedQueue ends requests at the second signal that go on after the first, because they hold
// messages.
type haltedQueue struct {
	queue.Manager
	finish context.Context
}

func (t *task) untilHalted(q queue.Manager) queue.Manager { return &haltedQueue{q, t.finish} }

// within returns ctx, which also ends at the second signal.
func (q *haltedQueue) within(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(q.finish, cancel)
	return ctx, func() { stop(); cancel() }
}

// Properties implements [queue.Queue].
func (q *haltedQueue) Properties(ctx context.Context) (queue.Properties, error) {
	ctx, end := q.within(ctx)
	defer end()
	return q.Manager.Properties(ctx)
}

// Enqueue implements [queue.Queue].
func (q *haltedQueue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	ctx, end := q.within(ctx)
	defer end()
	return q.Manager.Enqueue(ctx, text, o)
}

// Dequeue implements [queue.Queue].
func (q *haltedQueue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	ctx, end := q.within(ctx)
	defer end()
	return q.Manager.Dequeue(ctx, n, visibility)
}

// Update implements [queue.Queue].
func (q *haltedQueue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	ctx, end := q.within(ctx)
	defer end()
	return q.Manager.Update(ctx, l, text, visibility)
}

// Delete implements [queue.Queue].
func (q *haltedQueue) Delete(ctx context.Context, l queue.Lease) error {
	ctx, end := q.within(ctx)
	defer end()
	return q.Manager.Delete(ctx, l)
}

// haltedAccount opens queues whose requests end at the second signal.
type haltedAccount struct {
	queue.Account
	task *task
}

// Open implements [queue.Account].
func (a haltedAccount) Open(name string) (queue.Manager, error) {
	q, err := a.Account.Open(name)
	if err != nil {
		return nil, err
	}
	return a.task.untilHalted(q), nil
}
