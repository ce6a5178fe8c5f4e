package wakeup

import (
	"context"
	"time"

	"github.com/millrace/millrace/queue"
)

// Event says that messages have come to a queue, or will be visible there later. Whoever enqueues
// publishes it afterwards.
type Event struct {
	// Queue is where the messages are.
	Queue queue.Name

	// Bytes is the size of the message, or of all messages that the event stands for. Zero means
	// unknown.
	Bytes int64

	// Due is when the messages become visible, for delayed ones. The zero time means now.
	Due time.Time
}

// Publisher sends events.
type Publisher interface {
	// Publish hands the event to the transport. It does not wait for subscribers, and returns when
	// ctx ends. An error means that probably nobody hears it; the messages are in the queue all the
	// same.
	Publish(ctx context.Context, e Event) error
}

// Source delivers events.
type Source interface {
	// Subscribe registers a subscriber for the events of a queue until its subscription is closed.
	// It may also hear the events of other queues, and must ignore them. It does not wait for a
	// connection. An error means that the source cannot deliver such events at all.
	Subscribe(q queue.Name, s Subscriber) (Subscription, error)
}

// Subscriber is what a source calls. It calls one function of a subscriber at a time, also during
// Subscribe and Ready. They must not wait, nor call the source or the subscription.
type Subscriber struct {
	// Event is called for each event that reaches the subscriber.
	Event func(Event)

	// Listening is called with true when events begin to reach the subscriber, and with false when
	// they cease to, such as when a connection is lost. Between processes an event reaches one of
	// the subscribers that are ready. What was published before is not delivered any more: a
	// subscriber therefore dequeues once after every call with true.
	Listening func(bool)
}

// Subscription is the registration of one subscriber. A new one is ready.
type Subscription interface {
	// Ready says whether the subscriber has room for work. While it has none, events go to others.
	// Ready(false) ends listening at once and without a call of Listening. Ready(true) begins it
	// again; Listening(true) is called when it is in force, and never for an earlier Ready.
	Ready(bool)

	// More says that the subscriber found more work than it took. A transport between processes
	// wakes another subscriber that is ready.
	More()

	// Close ends the subscription. No function of the subscriber is called after it has returned. A second Close does nothing.
	Close()
}
