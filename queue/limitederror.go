package queue

import (
	"errors"
	"fmt"
	"time"
)

// ErrLimited means that a limit which the program has set itself does not allow the request now.
// Nothing was sent. Every [*LimitedError] is one.
var ErrLimited = errors.New("limited")

// LimitedError is the error of a request that a limit of the program holds back, such as a dequeue of a
// queue of package queue/limited. It is no failure: nothing was sent, and the service was not asked. A
// listener waits and reports nothing.
type LimitedError struct {
	Op    string // operation, such as "dequeue"
	Queue Name   // queue of the operation

	// After is how long to wait before the request is worth another try. It may be refused again, because
	// others share the limit. Zero and below mean at once.
	After time.Duration

	Limit string // the limit, for people, such as "2000 messages a second"; "" if there is nothing to say
}

// Error says what was attempted and how long to wait.
func (e *LimitedError) Error() string {
	text := ErrLimited.Error()
	if e.Op != "" {
		text = fmt.Sprintf("%s on %v: %s", e.Op, e.Queue, text)
	}
	if e.Limit != "" {
		text += " to " + e.Limit
	}
	return fmt.Sprintf("%s: nothing was sent; try again in %v", text, max(e.After, 0).Round(time.Millisecond))
}

// Is reports whether target is [ErrLimited].
func (e *LimitedError) Is(target error) bool { return target == ErrLimited }
