package meter

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/queue"
)

// Wrap returns a queue whose requests, and those of its siblings, the meter counts. It is a
// [queue.Manager] if q is one.
func (m *Meter) Wrap(q queue.Queue) queue.Queue {
	counted := counted{q, m}
	if inner, ok := q.(queue.Manager); ok {
		return managed{counted, inner}
	}
	return counted
}

// counted is a queue whose requests are counted.
type counted struct {
	inner queue.Queue
	meter *Meter
}

var (
	_ queue.Queue   = counted{}
	_ queue.Manager = managed{}
)

// Unwrap returns the queue underneath, for errors that name its type.
func (c counted) Unwrap() queue.Queue { return c.inner }

// Name implements [queue.Queue].
func (c counted) Name() queue.Name { return c.inner.Name() }

// Sibling implements [queue.Queue].
func (c counted) Sibling(suffix string) queue.Queue { return c.meter.Wrap(c.inner.Sibling(suffix)) }

// Enqueue implements [queue.Queue].
func (c counted) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	sent, err := c.inner.Enqueue(ctx, text, o)
	got := outcomeOf(err)
	if errors.Is(err, queue.ErrQueueMissing) && c.meter.cause(ctx) == queue.CausePoison {
		got = done // the first message of a poison queue, which is created next
	}
	c.meter.count(ctx, Enqueue, got)
	return sent, err
}

// Dequeue implements [queue.Queue].
func (c counted) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	batch, err := c.inner.Dequeue(ctx, n, visibility)
	got := outcomeOf(err)
	if got == done && len(batch) == 0 {
		got = empty
	}
	c.meter.count(ctx, Dequeue, got)
	if len(batch) > 0 {
		c.meter.messages[c.meter.cause(ctx)].Add(int64(len(batch)))
	}
	return batch, err
}

// Peek implements [queue.Queue].
func (c counted) Peek(ctx context.Context, n int) ([]queue.Message, error) {
	batch, err := c.inner.Peek(ctx, n)
	c.meter.count(ctx, Peek, outcomeOf(err))
	return batch, err
}

// Update implements [queue.Queue].
func (c counted) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	fresh, err := c.inner.Update(ctx, l, text, visibility)
	c.meter.count(ctx, Update, outcomeOf(err))
	return fresh, err
}

// Delete implements [queue.Queue].
func (c counted) Delete(ctx context.Context, l queue.Lease) error {
	err := c.inner.Delete(ctx, l)
	c.meter.count(ctx, Delete, outcomeOf(err))
	return err
}

// Properties implements [queue.Queue].
func (c counted) Properties(ctx context.Context) (queue.Properties, error) {
	p, err := c.inner.Properties(ctx)
	c.meter.count(ctx, Properties, outcomeOf(err))
	return p, err
}

// Create implements [queue.Queue].
func (c counted) Create(ctx context.Context, metadata map[string]string) error {
	err := c.inner.Create(ctx, metadata)
	c.meter.count(ctx, Create, outcomeOf(err))
	return err
}

// managed is a [queue.Manager] whose requests are counted.
type managed struct {
	counted
	manager queue.Manager
}

// SetMetadata implements [queue.Manager].
func (m managed) SetMetadata(ctx context.Context, metadata map[string]string) error {
	err := m.manager.SetMetadata(ctx, metadata)
	m.meter.count(ctx, SetMetadata, outcomeOf(err))
	return err
}

// Clear implements [queue.Manager].
func (m managed) Clear(ctx context.Context) error {
	err := m.manager.Clear(ctx)
	m.meter.count(ctx, Clear, outcomeOf(err))
	return err
}

// Drop implements [queue.Manager].
func (m managed) Drop(ctx context.Context) error {
	err := m.manager.Drop(ctx)
	m.meter.count(ctx, Drop, outcomeOf(err))
	return err
}
