package paired

import (
	"context"

	"github.com/millrace/millrace/internal/waiting"
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
			waiting.ForChange(wait, changed, q.life.Done()) // no wait: the end of a probe in flight is a change
		}
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
