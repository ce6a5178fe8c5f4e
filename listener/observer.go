package listener

import (
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/queue"
)

// Observer is told what a listener does, and through the embedded one what happens to
// its deliveries: the seam that metrics and tracing hang on. Every field may be nil. The
// functions are called from many goroutines at once: they must be quick and must not
// block. The fields of the embedded one are set by assignment, which needs no other package:
//
//	var o listener.Options[Order]
//	o.Observer.Settled = func(d listener.Delivery, became listener.Outcome, took time.Duration) { … }
type Observer struct {
	dispatcher.Observer

	// Polled: a dequeue was answered, or failed.
	Polled func(Poll)

	// Received: a dequeue brought these messages. The slice must not be changed or kept.
	Received func([]queue.Message)

	// Scaled: the number of loops has changed.
	Scaled func(Scale)
}

// Poll is one dequeue.
type Poll struct {
	Queue queue.Name
	Asked int           // for how many messages
	Got   int           // how many there were
	Took  time.Duration // until the answer
	Err   error         // nil when it was answered
}

// Scale is a change of the number of loops.
type Scale struct {
	Queue queue.Name
	Loops int // how many run now
}
