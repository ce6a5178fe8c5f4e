package dispatcher

import (
	"log/slog"
	"time"

	"github.com/millrace/millrace/queue"
)

// Delivery describes one delivery of a message to what does not know its type: an
// [Observer], an [Interceptor], a log. It may be kept.
type Delivery struct {
	Queue        queue.Name
	ID           queue.ID
	Job          string // the job's id from the envelope; empty for a foreign message
	Attempt      int    // 1 at the first; see [Message]
	MaxAttempts  int    // the attempt that is the last one
	DequeueCount int64
	Inserted     time.Time // by the service's clock
	Enqueued     time.Time // by the producer's clock, from the envelope; zero for a foreign message
	Expires      time.Time // by the service's clock; in the year 9999 for a message that never does
	Trace        string    // the producer's W3C trace context, from the envelope; empty when none
	TraceState   string
}

// Last tells whether this is the last attempt: an error moves the message to the poison
// queue.
func (d Delivery) Last() bool { return d.AttemptsLeft() == 0 }

// AttemptsLeft is how many attempts follow if this one fails.
func (d Delivery) AttemptsLeft() int { return max(d.MaxAttempts-d.Attempt, 0) }

// LogValue gives package log/slog the fields queue, message, job and attempt.
func (d Delivery) LogValue() slog.Value { return slog.GroupValue(d.attrs()...) }

func (d Delivery) attrs() []slog.Attr {
	attrs := append(make([]slog.Attr, 0, 8), slog.String("queue", d.Queue.String()), slog.String("message", string(d.ID)))
	if d.Job != "" {
		attrs = append(attrs, slog.String("job", d.Job))
	}
	return append(attrs, slog.Int("attempt", d.Attempt))
}

// described describes the delivery. It is called while others record in the head what
// happens, so it reads only what is never changed, and the attempts.
func (v *delivery[T]) described() Delivery {
	return Delivery{
		Queue: v.dispatcher.name, ID: v.queued.ID, Job: v.head.ID,
		Attempt: v.attempt(), MaxAttempts: v.dispatcher.options.Poison.MaxAttempts, DequeueCount: v.queued.DequeueCount,
		Inserted: v.queued.Inserted, Enqueued: v.head.Enqueued, Expires: v.queued.Expires,
		Trace: v.head.Trace, TraceState: v.head.TraceState,
	}
}
