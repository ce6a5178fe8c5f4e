package paired

import (
	"context"
	"time"

	"github.com/millrace/millrace/queue"
)

// watch starts the goroutine that watches a primary queue that is failed over, unless it runs. It ends when
// sends return, or with [Queue.Close].
func (q *Queue) watch() {
	if q.failover.beginWatch(&q.watchers) {
		go q.read()
	}
}

// read probes the primary queue by reading its properties whenever no send has probed it for long.
func (q *Queue) read() {
	defer q.watchers.Done()
	for {
		due, wait, changed, on := q.failover.beginReading()
		switch {
		case !on:
			return
		case due:
			q.readOnce()
		default:
			q.await(wait, changed)
		}
	}
}

// await returns when d has passed, changed is closed or the queue is closed.
func (q *Queue) await(d time.Duration, changed <-chan struct{}) {
	if d <= 0 { // a probe is in flight, and its end is a change
		d = time.Hour
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-q.life.Done():
	}
}

// readOnce sends one request.
func (q *Queue) readOnce() {
	ctx, cancel := context.WithTimeout(queue.WithCause(q.life, queue.CauseMetadata), probeTry)
	defer cancel()
	_, err := q.primary.Properties(ctx)
	q.failover.endReading(err)
	q.report()
}

// Close ends what the queue does in the background while it is failed over, and waits for its end. It may be
// called more than once. Messages can still be sent, and then probe the primary queue, but nothing else does.
func (q *Queue) Close() {
	q.failover.close()
	q.cancel()
	q.watchers.Wait()
}
