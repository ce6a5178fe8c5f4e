package faultqueue

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/queue"
)

// Call is a call in the trace, or the [Arrival] of a late one. Calls can be compared with ==.
type Call struct {
	At      time.Duration // when it began, since [New]
	Took    time.Duration // its duration
	Queue   string        // the queue's name
	Op      Op
	Message queue.ID // its message; for an enqueue the new one; "" if none
	Ordinal int      // number of earlier calls with the same operation and subject
	Fault   Fault    // "" if none
	Count   int      // messages returned, or lost on the way; for a duplicate dequeue those of the second
	Error   string   // kind of the error, such as "throttled"; "" if none
}

// Trace returns all calls that have ended, sorted by time, queue, message, operation and ordinal.
// It is empty without [Options].Record.
func (q *Queue) Trace() []Call {
	q.injector.mu.Lock()
	trace := slices.Clone(q.injector.trace)
	q.injector.mu.Unlock()
	slices.SortStableFunc(trace, func(a, b Call) int {
		return cmp.Or(
			cmp.Compare(a.At, b.At), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Message, b.Message),
			cmp.Compare(a.Op, b.Op), cmp.Compare(a.Ordinal, b.Ordinal), cmp.Compare(a.Took, b.Took), cmp.Compare(a.Fault, b.Fault),
		)
	})
	return trace
}

// record adds a finished call to the trace.
func (w *injector) record(f injection, id queue.ID, count int, err error) {
	if !w.o.Record {
		return
	}
	c := Call{
		At: f.started, Took: time.Since(w.start) - f.started,
		Queue: f.queue, Op: f.op, Message: id, Ordinal: f.ordinal, Fault: f.fault, Count: count,
	}
	if err != nil {
		c.Error = "failed"
		if known := (*queue.Error)(nil); errors.As(err, &known) && known.Kind != nil {
			c.Error = known.Kind.Error()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trace = append(w.trace, c)
}
