// Package driver is for authors of queues and of wrappers around queues: it checks arguments as the
// port asks, and knows the rules that several queues share. Users of queues need none of it.
//
// An implementation of [queue.Queue] checks its arguments before it sends a request: [CheckEnqueue] and
// [CheckText] in Enqueue, [CheckDequeue], [CheckPeek], [CheckUpdate], [CheckLease] in Delete, and
// [CheckMetadata] in Create. An account has [CheckName] and [CheckList]. Their errors lack the operation and
// the queue, which [Explain] adds. Package queuetest is the conformance suite.
//
// This package is experimental: any release may change it. See docs/stability.md.
package driver

import (
	"errors"

	"github.com/millrace/millrace/queue"
)

// Explain returns err as an [*queue.Error] that says what was attempted on which queue and message. If
// err contains an *Error, Explain returns a copy of that one.
func Explain(err error, op string, name queue.Name, id queue.ID) *queue.Error {
	e := &queue.Error{Err: err}
	if known := (*queue.Error)(nil); errors.As(err, &known) {
		c := *known
		e = &c
	}
	e.Op, e.Queue, e.Message = op, name, id
	return e
}

// EmptyAfter returns after how many short batches in a row, with fewer messages than asked for, a
// listener with wake-ups takes q for empty. It is the result of the method EmptyAfter() int of q, which
// is asked after each dequeue. A queue whose short batch shows that no other message is visible
// returns 1. Without the method the result is 0: only a dequeue that returns no message shows it,
// because q may be a wrapper that asks for fewer. A wrapper may have the method too, and return
// EmptyAfter of the queue underneath, or 0 if its last dequeue asked that for fewer and got them all.
func EmptyAfter(q queue.Queue) int {
	if says, ok := q.(interface{ EmptyAfter() int }); ok {
		return says.EmptyAfter()
	}
	return 0
}
