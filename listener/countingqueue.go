package listener

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/queue"
)

// countingQueue counts the requests of one listener. Each is billed as a transaction.
type countingQueue struct {
	queue.Queue
	sent *atomic.Int64 // shared with sibling queues
}

// Unwrap returns the queue underneath, for errors that name its type.
func (c countingQueue) Unwrap() queue.Queue { return c.Queue }

func (c countingQueue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	c.sent.Add(1)
	return c.Queue.Enqueue(ctx, text, o)
}

func (c countingQueue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	c.sent.Add(1)
	return c.Queue.Dequeue(ctx, n, visibility)
}

func (c countingQueue) Peek(ctx context.Context, n int) ([]queue.Message, error) {
	c.sent.Add(1)
	return c.Queue.Peek(ctx, n)
}

func (c countingQueue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	c.sent.Add(1)
	return c.Queue.Update(ctx, l, text, visibility)
}

func (c countingQueue) Delete(ctx context.Context, l queue.Lease) error {
	c.sent.Add(1)
	return c.Queue.Delete(ctx, l)
}

func (c countingQueue) Properties(ctx context.Context) (queue.Properties, error) {
	c.sent.Add(1)
	return c.Queue.Properties(ctx)
}

func (c countingQueue) Create(ctx context.Context, metadata map[string]string) error {
	c.sent.Add(1)
	return c.Queue.Create(ctx, metadata)
}

// setMetadata replaces all metadata. The queue underneath must be a [queue.Manager].
func (c countingQueue) setMetadata(ctx context.Context, metadata map[string]string) error {
	c.sent.Add(1)
	return c.Queue.(queue.Manager).SetMetadata(ctx, metadata)
}

func (c countingQueue) Sibling(suffix string) queue.Queue {
	return countingQueue{c.Queue.Sibling(suffix), c.sent}
}
