package filequeue

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
)

// TestTenThousandQueuesAreReopened: each queue has its message.
func TestManyQueuesAreReopened(t *testing.T) {
	const queues = 500
	ctx := context.Background()
	dir := memoryDirectory(t)
	e := opened(t, dir)
	named := func(i int64) queue.Manager {
		return e.Queue(queue.Name{Account: account, Queue: fmt.Sprintf("queue-%d", i)})
	}
	var next atomic.Int64
	each(t, queues, func(ctx context.Context) error {
		i := next.Add(1)
		if err := named(i).Create(ctx, map[string]string{"number": fmt.Sprint(i)}); err != nil {
			return err
		}
		_, err := named(i).Enqueue(ctx, fmt.Sprint(i), nil)
		return err
	})
	closed(t, e)
	e = opened(t, dir)
	next.Store(0)
	each(t, queues, func(context.Context) error {
		i := next.Add(1)
		batch, err := named(i).Dequeue(ctx, queue.MaxBatch, time.Minute)
		if err != nil || len(batch) != 1 || batch[0].Text != fmt.Sprint(i) {
			return fmt.Errorf("queue %d: %d messages, %w", i, len(batch), err)
		}
		return named(i).Delete(ctx, batch[0].Lease)
	})
	p, err := named(queues).Properties(ctx)
	if err != nil || p.Metadata["number"] != fmt.Sprint(queues) || p.Depth != 0 {
		t.Errorf("got %+v, %v; want depth 0 and number %d", p, err, queues)
	}
}
