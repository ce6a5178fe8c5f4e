package meter

import (
	"context"
	"sync/atomic"

	"github.com/millrace/millrace/queue"
)

// Meter counts the requests of the queues that it wraps, since it was made. Make one with [New]. It is
// safe for concurrent use.
type Meter struct {
	causes   int
	requests []atomic.Int64 // by operation, cause, whether repeated, and outcome
	messages []atomic.Int64 // that dequeues returned, by cause
}

// New returns a meter that has counted nothing.
func New() *Meter {
	n := len(queue.Causes())
	return &Meter{
		causes:   n,
		requests: make([]atomic.Int64, int(operations)*n*2*int(outcomes)),
		messages: make([]atomic.Int64, n),
	}
}

// at returns the first of the counts of an operation and a cause, of which there is one for each
// outcome of a first request, then one for each of a repeated one.
func (m *Meter) at(o Operation, c queue.Cause) int {
	return (int(o)*m.causes + int(c)) * 2 * int(outcomes)
}

func (m *Meter) count(ctx context.Context, o Operation, got outcome) {
	if got == unsent {
		return
	}
	i := m.at(o, m.cause(ctx)) + int(got)
	if queue.Repeats(ctx) > 0 {
		i += int(outcomes)
	}
	m.requests[i].Add(1)
}

// cause returns the cause of requests with this context. One that does not exist is unknown.
func (m *Meter) cause(ctx context.Context) queue.Cause {
	if c := queue.CauseOf(ctx); int(c) < m.causes {
		return c
	}
	return queue.CauseUnknown
}

// Counts returns what was counted so far. Requests count when they have ended. While requests are
// sent the counts of different lines are not of one instant, but none ever goes down.
func (m *Meter) Counts() Counts {
	var counts Counts
	all := queue.Causes()
	for o := range operations {
		for _, c := range all {
			line := Line{Operation: o, Cause: c}
			if o == Dequeue {
				line.Messages = m.messages[c].Load() // before the requests, so that none has more than it could
			}
			from := m.at(o, c)
			for i := range int(outcomes) {
				line.add(outcome(i), m.requests[from+i].Load(), m.requests[from+int(outcomes)+i].Load())
			}
			if line.Requests > 0 {
				counts = append(counts, line)
			}
		}
	}
	return counts
}
