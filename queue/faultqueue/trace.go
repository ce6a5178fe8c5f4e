package faultqueue

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/millrace/millrace/queue"
)

// Call is one call as the trace keeps it, or the [Arrival] of a late one. Two of them can
// be compared with ==.
type Call struct {
	At      time.Duration // when it was made, since [New]
	Took    time.Duration // how long it took
	Queue   string        // the queue's name within the account
	Op      Op
	Message queue.ID // whose it was; of an enqueue, which it made; "" for none
	Ordinal int      // how often the same was asked before
	Fault   Fault    // "" for none
	Count   int      // messages handed out, or lost on the way; of a doubled dequeue, by the second
	Error   string   // the kind of its error, such as "throttled"; "" for none
}

// Trace returns all calls so far that have ended, sorted by instant, queue,
// message, operation and ordinal. It is empty without [Options.Record].
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

// record keeps a call that has ended.
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
