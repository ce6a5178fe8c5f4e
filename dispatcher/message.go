package dispatcher

import (
	"context"
	"errors"
	"fmt"
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

	// MaxAttempts is the attempt that is the last one, from Options.Poison.
	MaxAttempts int

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

	delivery *delivery[T] // nil for a message that came from no queue
}

// Last tells whether this is the last attempt: an error moves the message to the poison
// queue, unless it is a [Snooze].
func (m *Message[T]) Last() bool { return m.AttemptsLeft() == 0 }

// AttemptsLeft is how many attempts follow if this one fails.
func (m *Message[T]) AttemptsLeft() int { return max(m.MaxAttempts-m.Attempt, 0) }

// described describes the delivery, also of a message that a test has made by hand.
func (m *Message[T]) described() Delivery {
	return Delivery{
		Queue: m.Queue, ID: m.ID, Job: m.Head.ID, Attempt: m.Attempt, MaxAttempts: m.MaxAttempts,
		DequeueCount: m.DequeueCount, Inserted: m.Inserted, Enqueued: m.Head.Enqueued, Expires: m.Expires,
		Trace: m.Head.Trace, TraceState: m.Head.TraceState,
	}
}

// errNoQueue is what Save says of a message that a test has made by hand.
var errNoQueue = errors.New("the message came from no queue")

// Save puts another body into the message while it is being handled, so that a later
// delivery begins from there: work in portions, save after each, and a crash repeats only
// the last one (B-11). The lease is renewed by the same request. It changes m.Body when
// the service has accepted it. An error that is an [ErrLeaseLost] means that the message
// is somebody else's; any other leaves the body as it was, or, if the outcome is unknown,
// as one of the two. A message in an envelope stays in it; one without is rewritten in
// the form that it came in. A body so large that later attempts could not be recorded in the
// message is [queue.ErrTooLarge], and nothing is sent.
func (m *Message[T]) Save(ctx context.Context, body T) error {
	err := errNoQueue
	if m.delivery != nil {
		err = m.delivery.save(ctx, body)
	}
	if err != nil {
		return fmt.Errorf("save the progress of message %s of %v: %w", string(m.ID), m.Queue, err)
	}
	m.Body = body
	return nil
}

// Handler does one job. Returning nil deletes the message; an error gives it back
// with a delay that grows with the attempt. [Retry], [Poison] and [Discard] say it
// explicitly, as does [Snooze]. A panic counts as an error, and so does a nil pointer in
// the error: return nil itself.
//
// The context ends when the lease is lost ([ErrLeaseLost], [ErrLeaseExpired]), the
// handler's time is up ([ErrTimeout]) or the worker is stopping and its grace
// period is over ([ErrStopping]); context.Cause says which. It does not end when
// shutdown begins. [DeliveryFrom] finds the delivery in it.
type Handler[T any] func(ctx context.Context, m *Message[T]) error
