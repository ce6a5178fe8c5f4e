package dispatcher

import (
	"log/slog"
	"time"

	"github.com/millrace/millrace/queue"
)

// Delivery describes one delivery to code that does not know the type of its job: an
// [Observer], an [Interceptor], a log. It may be kept.
type Delivery struct {
	Queue        queue.Name
	ID           queue.ID
	Job          string // the job id from the envelope; empty for a message without one
	Kind         string // the type of the job on a queue of several; from the envelope; empty for one without
	Attempt      int    // 1 at the first; see [Message]
	MaxAttempts  int    // the number of the last attempt
	DequeueCount int64
	Inserted     time.Time // by the service's clock
	Enqueued     time.Time // by the producer's clock, from the envelope; zero for a message without one
	Expires      time.Time // by the service's clock; in the year 9999 for a message that never expires
	Trace        string    // the producer's W3C trace context, from the envelope; empty when none
	TraceState   string
	Item         int // the index of the job in its group, from 0; see [Each]
	Items        int // how many jobs the group has; 0 for a job that is in none

	ofItem bool // whether it is for the handler of one item
}

// Last reports whether this is the last attempt: an error then moves the message to the poison
// queue.
func (d Delivery) Last() bool { return d.AttemptsLeft() == 0 }

// AttemptsLeft returns how many attempts remain after this one.
func (d Delivery) AttemptsLeft() int { return max(d.MaxAttempts-d.Attempt, 0) }

// LogValue returns the attributes queue, message, job, kind, item and attempt as a group.
func (d Delivery) LogValue() slog.Value { return slog.GroupValue(d.attrs()...) }

func (d Delivery) attrs() []slog.Attr {
	attrs := append(make([]slog.Attr, 0, 9), slog.String("queue", d.Queue.String()), slog.String("message", string(d.ID)))
	if d.Job != "" {
		attrs = append(attrs, slog.String("job", d.Job))
	}
	if d.Kind != "" {
		attrs = append(attrs, slog.String("kind", d.Kind))
	}
	if d.ofItem {
		attrs = append(attrs, slog.Int("item", d.Item))
	}
	return append(attrs, slog.Int("attempt", d.Attempt))
}

// describedItem returns the description of the delivery for the handler of an item.
func (v *delivery) describedItem(item int) Delivery {
	d := v.described()
	d.Item, d.ofItem = item, d.Items > 0
	return d
}

// described returns the description of the delivery. It may run while the head is being
// changed, so it reads only fields that never change and the attempts.
func (v *delivery) described() Delivery {
	return Delivery{
		Queue: v.dispatcher.name, ID: v.queued.ID, Job: v.head.ID, Kind: v.head.Kind,
		Attempt: v.attempt(), MaxAttempts: v.maxAttempts(), DequeueCount: v.queued.DequeueCount,
		Inserted: v.queued.Inserted, Enqueued: v.head.Enqueued, Expires: v.queued.Expires,
		Trace: v.head.Trace, TraceState: v.head.TraceState, Items: v.head.Items,
	}
}
