package agent

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/queue"
)

// Error is something that failed for one pool. The agent goes on, and tries again at the next measurement.
type Error struct {
	// Pool is the name of the pool.
	Pool string

	// Doing is what was attempted, such as "read the depth".
	Doing string

	// Queue is where; the zero value if it concerns no queue.
	Queue queue.Name

	// Consequence is what follows from it, such as that a figure is unknown.
	Consequence string

	// Hint is what to do about it; "" if there is nothing to say.
	Hint string

	// Err is why.
	Err error

	kind string // of failures that are one in the log; defaults to Doing
	once bool   // it does not last until it works again
}

// Error returns all of it in one sentence.
func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "pool %s: %s", e.Pool, e.Doing)
	if e.Queue != (queue.Name{}) {
		fmt.Fprintf(&b, " of %v", e.Queue)
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	for _, more := range []string{e.Consequence, e.Hint} {
		if more != "" {
			b.WriteString("; " + more)
		}
	}
	return b.String()
}

// Unwrap returns why.
func (e *Error) Unwrap() error { return e.Err }

// MarshalText returns the sentence, for JSON.
func (e *Error) MarshalText() ([]byte, error) { return []byte(e.Error()), nil }

// What the agent does, for [Error.Doing].
const (
	readingDepth     = "read the depth"
	peeking          = "look at the oldest message"
	readingReports   = "read the reports"
	readingInstances = "read how many instances there are"
	subscribing      = "subscribe to wake-ups"
	readingHistory   = "read the history"
	keepingHistory   = "keep the history"
)

// queueHint says what to do about an error of a queue.
func queueHint(err error, right string) string {
	switch {
	case errors.Is(err, queue.ErrQueueMissing):
		return "create the queue, or take it out of the pool"
	case errors.Is(err, queue.ErrQueueBeingDeleted):
		return "it can be created again in about 30 s"
	case errors.Is(err, queue.ErrUnauthorized):
		return "give the agent the right to " + right
	case errors.Is(err, errHangs):
		return "the queue ignores contexts; restart the agent if this lasts"
	}
	return ""
}
