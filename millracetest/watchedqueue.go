package millracetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// maxDeliveries is how many deliveries of one message end a test that would not end by itself.
const maxDeliveries = 1000

// watchedQueue is the queue of a round. It stops the listener when a poll finds nothing.
type watchedQueue struct {
	queue.Queue
	limit int // messages to return at most; 0 for any number

	mu      sync.Mutex
	stop    func()        // ends the round; guarded by mu
	got     int           // messages returned; guarded by mu
	err     error         // why the round must end; guarded by mu
	updated time.Duration // visibility of the last update; guarded by mu
}

func (q *watchedQueue) begin(stop func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stop = stop
}

func (q *watchedQueue) failure() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.err
}

// Update records the visibility. That of the settlement comes after all renewals.
func (q *watchedQueue) Update(ctx context.Context, l queue.Lease, text string, visibility time.Duration) (queue.Lease, error) {
	fresh, err := q.Queue.Update(ctx, l, text, visibility)
	if err == nil {
		q.mu.Lock()
		q.updated = visibility
		q.mu.Unlock()
	}
	return fresh, err
}

// Dequeue stops the listener when there are no messages, or no more to return, and on permanent
// errors.
func (q *watchedQueue) Dequeue(ctx context.Context, n int, visibility time.Duration) ([]queue.Message, error) {
	q.mu.Lock()
	if q.limit > 0 {
		n = min(n, q.limit-q.got)
	}
	q.mu.Unlock()
	var batch []queue.Message
	var err error
	if n > 0 {
		batch, err = q.Queue.Dequeue(ctx, n, visibility)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.got += len(batch)
	for _, m := range batch {
		if m.DequeueCount >= maxDeliveries {
			q.err = fmt.Errorf("message %s of %v has been delivered %d times: does its handler retry or snooze without a delay?",
				string(m.ID), q.Name(), m.DequeueCount)
		}
	}
	switch {
	case errors.Is(err, queue.ErrQueueMissing), errors.Is(err, queue.ErrUnauthorized), errors.Is(err, queue.ErrInvalid):
		q.err = err
	case err != nil: // transient: the listener tries again
		return batch, err
	}
	if len(batch) == 0 || q.err != nil {
		q.stop()
	}
	return batch, err
}
