package faultqueue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// Queue injects faults into a queue. It is safe for concurrent use. Create one with [New].
type Queue struct {
	_ [0]sync.Mutex // go vet reports copies

	inner    queue.Queue
	injector *injector
}

var _ queue.Manager = (*Queue)(nil)

// New wraps a queue with faults. The times of [Call].At, [Options].Missing and [Options].Phases
// start here. Nil options inject no faults. The error names an operation that does not exist, or
// a rate that is not from 0 to 1.
func New(inner queue.Queue, o *Options) (*Queue, error) {
	o = cmp.Or(o, &Options{})
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("faultqueue: %w", err)
	}
	return &Queue{inner: inner, injector: newInjector(*o)}, nil
}

// Name returns the name of the inner queue.
func (q *Queue) Name() queue.Name { return q.inner.Name() }

// Sibling returns the inner queue's sibling with the same faults. It shares seed, trace and death
// with q.
func (q *Queue) Sibling(suffix string) queue.Queue {
	return &Queue{inner: q.inner.Sibling(suffix), injector: q.injector}
}

// Kill lets the process die: no later call reaches the inner queue, except [Late] requests
// already in flight.
func (q *Queue) Kill() { q.injector.kill() }

// Died is closed when the process dies.
func (q *Queue) Died() <-chan struct{} { return q.injector.died }

// Wait returns when no [Late] request of q and its siblings is in flight. Call it after the last
// call has returned.
func (q *Queue) Wait() { q.injector.waitLate() }

// Enqueue implements [queue.Queue].
func (q *Queue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (queue.Message, error) {
	if o != nil {
		c := *o // a late request reads it after the caller may have changed it
		o = &c
	}
	bad := cmp.Or(driver.CheckEnqueue(o), driver.CheckText(text))
	return call(ctx, q, Enqueue, text, "", bad, func(ctx context.Context) (queue.Message, error) {
		m, err := q.inner.Enqueue(ctx, text, o)
		q.skew(&m)
		return m, err
	})
}

// EmptyAfter returns what short batches of the queue underneath show: see [driver.EmptyAfter].
func (q *Queue) EmptyAfter() int { return driver.EmptyAfter(q.inner) }

// Dequeue implements [queue.Queue].
func (q *Queue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	return call(ctx, q, Dequeue, strconv.Itoa(n), "", driver.CheckDequeue(n, visibility), func(ctx context.Context) ([]queue.Message, error) {
		return q.skewed(q.inner.Dequeue(ctx, n, visibility))
	})
}

// Peek implements [queue.Queue].
func (q *Queue) Peek(ctx context.Context, n int) ([]queue.Message, error) {
	return call(ctx, q, Peek, "", "", driver.CheckPeek(n), func(ctx context.Context) ([]queue.Message, error) {
		return q.skewed(q.inner.Peek(ctx, n))
	})
}

// Update implements [queue.Queue].
func (q *Queue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	return call(ctx, q, Update, string(l.ID), l.ID, driver.CheckUpdate(l, text, visibility), func(ctx context.Context) (queue.Lease, error) {
		fresh, err := q.inner.Update(ctx, l, text, visibility)
		shift(&fresh.Until, q.injector.skew(q.inner.Name().Queue))
		return fresh, err
	})
}

// Delete implements [queue.Queue].
func (q *Queue) Delete(ctx context.Context, l queue.Lease) error {
	return q.do(ctx, Delete, string(l.ID), l.ID, driver.CheckLease(l), func(ctx context.Context) error { return q.inner.Delete(ctx, l) })
}

// Properties implements [queue.Queue].
func (q *Queue) Properties(ctx context.Context) (queue.Properties, error) {
	return call(ctx, q, Properties, "", "", nil, func(ctx context.Context) (queue.Properties, error) { return q.inner.Properties(ctx) })
}

// Create implements [queue.Queue].
func (q *Queue) Create(ctx context.Context, metadata map[string]string) error {
	metadata = maps.Clone(metadata)
	return q.do(ctx, Create, "", "", driver.CheckMetadata(metadata), func(ctx context.Context) error { return q.inner.Create(ctx, metadata) })
}

// SetMetadata implements [queue.Manager]. The error is [queue.ErrInvalid] if the inner queue is
// not a Manager.
func (q *Queue) SetMetadata(ctx context.Context, metadata map[string]string) error {
	m, bad := q.manager()
	bad = cmp.Or(bad, driver.CheckMetadata(metadata))
	metadata = maps.Clone(metadata)
	return q.do(ctx, SetMetadata, "", "", bad, func(ctx context.Context) error { return m.SetMetadata(ctx, metadata) })
}

// Clear implements [queue.Manager]. The error is [queue.ErrInvalid] if the inner queue is not a
// Manager.
func (q *Queue) Clear(ctx context.Context) error {
	m, bad := q.manager()
	return q.do(ctx, Clear, "", "", bad, func(ctx context.Context) error { return m.Clear(ctx) })
}

// Drop implements [queue.Manager]. The error is [queue.ErrInvalid] if the inner queue is not a
// Manager.
func (q *Queue) Drop(ctx context.Context) error {
	m, bad := q.manager()
	return q.do(ctx, Drop, "", "", bad, func(ctx context.Context) error { return m.Drop(ctx) })
}

func (q *Queue) manager() (queue.Manager, error) {
	if m, ok := q.inner.(queue.Manager); ok {
		return m, nil
	}
	return nil, &queue.Error{Kind: queue.ErrInvalid, Detail: "the inner queue cannot be administered: it is not a queue.Manager"}
}

// skewed converts the messages of a response to the server's clock.
func (q *Queue) skewed(batch []queue.Message, err error) ([]queue.Message, error) {
	for i := range batch {
		q.skew(&batch[i])
	}
	return batch, err
}

// skew converts a message to the server's clock at the time the server acts.
func (q *Queue) skew(m *queue.Message) {
	by := q.injector.skew(q.inner.Name().Queue)
	shift(&m.Until, by)
	shift(&m.Inserted, by)
	shift(&m.Expires, by)
}

// shift moves a time, except the zero time and "never".
func shift(t *time.Time, by time.Duration) {
	if !t.IsZero() && t.UTC().Year() < 9999 {
		*t = t.Add(by)
	}
}
