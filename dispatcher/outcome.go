package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/queue"
)

// Why a handler's context ended: context.Cause returns one of these.
var (
	// ErrLeaseLost is queue.ErrLeaseLost: the service says that the message is somebody
	// else's, or gone. The handler's result settles nothing.
	ErrLeaseLost = queue.ErrLeaseLost

	// ErrLeaseExpired means that the lease could not be renewed in time by our
	// own clock. A handler that still succeeds tries one delete.
	ErrLeaseExpired = errors.New("lease expired: it could not be renewed in time")

	// ErrTimeout means that the handler's time is up. It counts as a failure, and matches
	// context.DeadlineExceeded as well.
	ErrTimeout error = timeoutError{}

	// ErrStopping means that the worker is stopping and its grace period is over.
	// The message is given back at once and no attempt is recorded.
	ErrStopping = errors.New("worker is stopping")
)

// timeoutError is [ErrTimeout].
type timeoutError struct{}

func (timeoutError) Error() string { return "handler time-out" }

// Timeout makes it what package net calls a time-out.
func (timeoutError) Timeout() bool { return true }

// Is matches what a context says whose deadline has passed.
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// overdueError is the error of a handler whose time was up. It matches [ErrTimeout] without
// being joined with it: a snooze after the time-out is still a snooze.
type overdueError struct {
	after time.Duration
	err   error
}

func (e *overdueError) Error() string {
	return fmt.Sprintf("%v after %v: %v", ErrTimeout, e.after, e.err)
}

func (e *overdueError) Is(target error) bool { return errors.Is(ErrTimeout, target) }

func (e *overdueError) Unwrap() error { return e.err }

// Outcome is how a delivery ended. The zero value is none of them.
type Outcome int

// The outcomes.
const (
	Deleted   Outcome = iota + 1 // the handler succeeded and the message was deleted
	Retried                      // the handler failed and the message was given back with a delay
	Discarded                    // the handler had no use for the message, which was deleted
	Poisoned                     // the message was copied to the poison queue and deleted
	Kept                         // the message is poison, and stays hidden where it is
	Snoozed                      // the message was given back for later, and no attempt was recorded
	GivenBack                    // the message was not handled to an end and is visible again
	Lost                         // the lease was lost, or too short to start: somebody else has the message, or will
	Unsettled                    // the service would not take the settlement: the message will be delivered again

	outcomes // how many there are
)

var outcomeNames = [outcomes]string{"none", "deleted", "retried", "discarded", "poisoned", "kept", "snoozed", "given back", "lost", "unsettled"}

// String names the outcome.
func (o Outcome) String() string {
	if o < 0 || o >= outcomes {
		return fmt.Sprintf("Outcome(%d)", int(o))
	}
	return outcomeNames[o]
}

// MarshalText names the outcome, for JSON and logs. An unknown one is an error.
func (o Outcome) MarshalText() ([]byte, error) {
	if o < 0 || o >= outcomes {
		return nil, fmt.Errorf("dispatcher: there is no %v", o)
	}
	return []byte(o.String()), nil
}

// UnmarshalText reads what [Outcome.MarshalText] writes.
func (o *Outcome) UnmarshalText(text []byte) error {
	for i, name := range outcomeNames {
		if name == string(text) {
			*o = Outcome(i)
			return nil
		}
	}
	return fmt.Errorf("dispatcher: %q is no outcome", text)
}

// verdict is what a handler asks for by returning an error of this type.
type handlerResult struct {
	err     error
	outcome Outcome       // Retried, Snoozed, Discarded or Poisoned
	delay   time.Duration // for Retried and Snoozed
}

func (v *handlerResult) Error() string {
	if v.err == nil {
		return v.outcome.String()
	}
	return v.err.Error()
}

func (v *handlerResult) Unwrap() error { return v.err }

// Retry returns an error that gives the message back for another attempt after
// the delay, in place of the retry curve. It is bounded by the longest visibility
// and the message's remaining life; a negative delay means at once. A message out
// of attempts is poison all the same.
func Retry(delay time.Duration, err error) error {
	return &handlerResult{err: err, outcome: Retried, delay: min(max(delay, 0), queue.MaxVisibility)}
}

// Snooze returns an error that gives the message back for later and records no attempt:
// it is not the job that failed, it is only too early. A message without an envelope
// cannot tell the difference: its dequeue count rises all the same (see
// Options.Adopt).
func Snooze(delay time.Duration) error {
	return &handlerResult{outcome: Snoozed, delay: min(max(delay, 0), queue.MaxVisibility)}
}

// Poison returns an error that moves the message to the poison queue now: no
// further attempt would help.
func Poison(err error) error { return &handlerResult{err: err, outcome: Poisoned} }

// Discard returns an error that deletes the message though it was not handled:
// nobody needs it any more.
func Discard(err error) error { return &handlerResult{err: err, outcome: Discarded} }

// PanicError is a panic in a handler, as the error that it counts as.
type PanicError struct {
	Value any    // what was passed to panic
	Stack []byte // the goroutine's stack at that point
}

// Error says what the panic said, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// errGoexit is the result of a handler that ended its goroutine.
var errGoexit = errors.New("handler called runtime.Goexit")

// AbandonedError names the messages whose handlers or settlements still ran when
// a drain had to end. They are visible again when their leases run out.
type AbandonedError struct {
	Queue    queue.Name
	Messages []queue.ID
}

// Error says it in one line.
func (e *AbandonedError) Error() string {
	ids := e.Messages
	more := ""
	if len(ids) > 10 {
		more = fmt.Sprintf(" and %d more", len(ids)-10)
		ids = ids[:10]
	}
	return fmt.Sprintf("%d handlers of %v did not stop in time: abandoned %v%s; their messages are delivered again when their leases end; let handlers watch their context",
		len(e.Messages), e.Queue, ids, more)
}
