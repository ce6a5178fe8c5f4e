package millracetest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/localqueue"
)

// Queue returns an empty queue in memory, in an account of its own. To producers and listeners
// it behaves like one in Azure, with receipts, visibility and limits. In addition it lets
// [Enqueued] see hidden messages. Its name is "jobs"; further queues of the same test are
// "jobs-2", "jobs-3" and so on, so that messages and errors tell them apart. In a synctest
// bubble it must be made inside the bubble. It is safe for concurrent use and needs no closing.
func Queue(t testing.TB) queue.Manager {
	t.Helper()
	q := newRecordingQueue(made.name(t))
	if err := q.Create(t.Context(), nil); err != nil {
		t.Fatalf("millracetest: make a queue: %v", err)
	}
	return q
}

// made counts the queues of each running test.
var made = counter{of: map[testing.TB]int{}}

type counter struct {
	mu sync.Mutex
	of map[testing.TB]int // guarded by mu
}

// name returns the name for the next queue of a test.
func (c *counter) name(t testing.TB) string {
	c.mu.Lock()
	c.of[t]++
	n := c.of[t]
	c.mu.Unlock()
	if n > 1 {
		return fmt.Sprintf("jobs-%d", n)
	}
	t.Cleanup(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.of, t)
	})
	return "jobs"
}

func newRecordingQueue(name string) *recordingQueue {
	return &recordingQueue{
		Queue:    localqueue.New(nil).Queue(queue.Name{Account: "millracetest", Queue: name}),
		journals: &journals{byName: map[string]*journal{}},
	}
}

// recordingQueue is a queue with a journal of its messages. A peek would return no more than 32
// messages and no hidden ones, and a dequeue would count as a delivery.
type recordingQueue struct {
	*localqueue.Queue
	journals *journals // of all queues of the account
}

func (q *recordingQueue) journal() *journal { return q.journals.of(q.Name().Queue) }

func (q *recordingQueue) Enqueue(ctx context.Context, text string, o *queue.EnqueueOptions) (m queue.Message, err error) {
	q.journal().change(func(j *journal) {
		if m, err = q.Queue.Enqueue(ctx, text, o); err == nil {
			j.add(m.ID, text, o.Life())
		}
	})
	return m, err
}

func (q *recordingQueue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (fresh queue.Lease, err error) {
	q.journal().change(func(j *journal) {
		if fresh, err = q.Queue.Update(ctx, l, text, visibility); err == nil {
			j.rewrite(l.ID, text)
		}
	})
	return fresh, err
}

func (q *recordingQueue) Delete(ctx context.Context, l queue.Lease) (err error) {
	q.journal().change(func(j *journal) {
		if err = q.Queue.Delete(ctx, l); err == nil {
			j.remove(l.ID)
		}
	})
	return err
}

func (q *recordingQueue) Clear(ctx context.Context) (err error) {
	q.journal().change(func(j *journal) {
		if err = q.Queue.Clear(ctx); err == nil {
			j.clear()
		}
	})
	return err
}

func (q *recordingQueue) Drop(ctx context.Context) (err error) {
	q.journal().change(func(j *journal) {
		if err = q.Queue.Drop(ctx); err == nil {
			j.clear()
		}
	})
	return err
}

// Sibling returns a recording queue too, such as the poison queue.
func (q *recordingQueue) Sibling(suffix string) queue.Queue {
	return &recordingQueue{Queue: q.Queue.Sibling(suffix).(*localqueue.Queue), journals: q.journals}
}
