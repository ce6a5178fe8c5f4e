package dispatcher

import (
	"context"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/queue"
)

// Message is one delivery of a job to a handler. It belongs to the handler until
// that returns.
type Message[T any] struct {
	// Body is the job.
	Body T

	// ID identifies the message within its queue. It stays the same over
	// redeliveries; log it, and use it to recognise duplicates.
	ID queue.ID

	// Queue is where the message came from.
	Queue queue.Name

	// Attempt says which attempt this is, 1 at the first: one more than there are
	// recorded failures. For a message without an envelope it is the dequeue count, so
	// a worker that died holding the message counts too.
	Attempt int

	// DequeueCount is how often the message has been delivered, this time included.
	DequeueCount int64

	// Head is what the envelope says: the job's id, when it was sent, its trace
	// context. Zero for a message without one.
	Head codec.Head

	// Inserted is when the service accepted the message, by its clock.
	Inserted time.Time

	// Expires is when the service drops the message, by its clock. A message that
	// never expires has a date in the year 9999.
	Expires time.Time
}

// Handler does one job. Returning nil deletes the message; an error gives it back
// with a delay that grows with the attempt. [Retry], [Poison] and [Discard] say it
// explicitly, as does [Snooze]. A panic counts as an error.
//
// The context ends when the lease is lost ([ErrLeaseLost], [ErrLeaseExpired]), the
// handler's time is up ([ErrTimeout]) or the worker is stopping and its grace
// period is over ([ErrStopping]); context.Cause says which. It does not end when
// shutdown begins.
type Handler[T any] func(ctx context.Context, m *Message[T]) error

// Middleware wraps a handler, for logging, tracing, limits and the like.
type Middleware[T any] func(Handler[T]) Handler[T]
