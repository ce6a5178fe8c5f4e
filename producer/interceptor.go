package producer

import (
	"context"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/queue"
)

// Sending is one Send on its way to the queue, as an [Interceptor] sees it.
type Sending struct {
	// Queue is the queue the job is sent to.
	Queue queue.Name

	// Head is the head of the envelope: the job id, when it was sent, its trace context. Changes
	// made before next is called are sent, except of Items, the number of jobs of a group.
	Head codec.Head

	// EnqueueOptions are Delay and TTL, and a key to choose one of several queues by, if it is not that of
	// Head. Changes made before next is called apply.
	queue.EnqueueOptions

	// Sent is the result after next has returned nil. Zero before.
	Sent Sent

	request   queue.EnqueueOptions // of the last request
	items     int                  // of the group that is sent; 0 for one job
	claim     string               // of the body, if Claims has stored it
	claimed   [2]string            // jobOf the job for which it was stored
	bytes     int64                // of the text that was sent last
	maybeSent error                // why the job may be in the queue already; nil if it is not
	where     []queue.Name         // the queues that it may be in, for wake-ups
}

// Interceptor wraps a Send and does not depend on the type of the jobs, so that one serves
// every producer of a program: for logging, tracing and the like. It calls next, which sends,
// with ctx or a context derived from it, and returns next's error or another. If it does not
// call next, nothing is sent; it should then return an error. It must be safe for concurrent
// use.
type Interceptor func(ctx context.Context, s *Sending, next func(context.Context) error) error

// intercepted returns the function that sends the body, wrapped in the interceptors; the first
// is the outermost.
func (p *Producer[T]) intercepted(s *Sending, body []byte) func(context.Context) error {
	send := func(ctx context.Context) error { return p.enqueue(ctx, s, body) }
	for i := len(p.options.Interceptors) - 1; i >= 0; i-- {
		intercept, next := p.options.Interceptors[i], send
		send = func(ctx context.Context) error { return intercept(ctx, s, next) }
	}
	return send
}
