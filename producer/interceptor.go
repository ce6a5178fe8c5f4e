package producer

import (
	"context"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/queue"
)

// Sending is one Send on its way to the queue, as an [Interceptor] sees it.
type Sending struct {
	// Queue is where it goes.
	Queue queue.Name

	// Head is what the envelope will say: the job's id, when it was sent. Changes that are
	// made before next is called are sent, such as a trace context. Formats without a head
	// leave it out.
	Head codec.Head

	// Options are the delay and the life. Changes that are made before next is called hold.
	Options SendOptions

	// Sent is what the service said, when next has returned nil. Zero before.
	Sent Sent
}

// Interceptor runs around a Send and does not depend on the type of the jobs, so that one
// can serve every producer of a program: for logging, tracing and the like. It calls next,
// which sends, with ctx or one made from it, and returns its error or another. It may call
// next not at all, and then nothing is sent; it should return an error that says so. It is
// called from many goroutines at once.
type Interceptor func(ctx context.Context, s *Sending, next func(context.Context) error) error

// intercepted returns what sends the body, behind the interceptors, the first of which is
// the outermost.
func (p *Producer[T]) intercepted(s *Sending, body []byte) func(context.Context) error {
	send := func(ctx context.Context) error { return p.enqueue(ctx, s, body) }
	for i := len(p.options.Interceptors) - 1; i >= 0; i-- {
		intercept, next := p.options.Interceptors[i], send
		send = func(ctx context.Context) error { return intercept(ctx, s, next) }
	}
	return send
}
