package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/serviceerror"
)

// The errors of every backend. Match them with [errors.Is]; [errors.As] finds the [*Error]
// that carries one.
var (
	// ErrLeaseLost is both [ErrReceiptMismatch] and [ErrMessageGone]: the lease has ended, and
	// the message can no longer be settled with it.
	ErrLeaseLost = errors.New("lease lost")

	// ErrReceiptMismatch means that a newer receipt exists: the message was dequeued again, or an
	// earlier update took effect. It is an [ErrLeaseLost].
	ErrReceiptMismatch error = &leaseError{"receipt is not the newest one"}

	// ErrMessageGone means that the message was deleted or has expired. It is an [ErrLeaseLost].
	ErrMessageGone error = &leaseError{"message is gone"}

	// ErrThrottled means that the service is busy: retry with backoff.
	ErrThrottled = errors.New("throttled")

	// ErrTooLarge means that the text or the request exceeds a limit.
	ErrTooLarge = errors.New("too large")

	// ErrQueueMissing means that the queue does not exist.
	ErrQueueMissing = errors.New("queue does not exist")

	// ErrQueueExists means that the queue exists with other metadata.
	ErrQueueExists = errors.New("queue exists with other metadata")

	// ErrQueueBeingDeleted means that a queue with this name is being deleted: wait.
	ErrQueueBeingDeleted = errors.New("queue is being deleted")

	// ErrUnauthorized means that authentication or authorization failed. Waiting does not help.
	ErrUnauthorized = errors.New("unauthorized")

	// ErrOutcomeUnknown means that no response arrived: the request may have taken effect or not.
	ErrOutcomeUnknown = errors.New("outcome unknown")

	// ErrUnavailable means that the service failed (a 5xx other than busy and timeout) or could
	// not be reached. As far as can be known the request did not take effect.
	ErrUnavailable = errors.New("service unavailable")

	// ErrInvalid means that the arguments are invalid: nothing was sent, or the service refused
	// them.
	ErrInvalid = errors.New("invalid argument")

	// ErrLimited means that a limit of the program itself, such as one of package queue/limits, does
	// not allow the request now: nothing was sent. Detail names the limit. It is not a failure, and
	// not [Transient]: wait for RetryAfter. A listener does, and reports nothing.
	ErrLimited = errors.New("limited")
)

// Transient reports whether the same request may succeed later: the service was busy or failed,
// or the outcome is unknown. The request may then have taken effect.
func Transient(err error) bool {
	return errors.Is(err, ErrThrottled) || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrOutcomeUnknown)
}

// leaseError is a sentinel that is also [ErrLeaseLost].
type leaseError struct{ text string }

func (e *leaseError) Error() string        { return e.text }
func (e *leaseError) Is(target error) bool { return target == ErrLeaseLost }

// Error is a failed operation: what was attempted, on which queue and message, what the service
// responded, and what to do. It contains no receipt and no signature.
type Error struct {
	Op      string // operation, such as "dequeue"; "" if only arguments were checked
	Queue   Name   // queue of the operation
	Message ID     // message of the operation; "" if none

	Kind error // a sentinel of this package; nil if none fits

	Status    int    // HTTP status; 0 if no response arrived
	Code      string // storage error code, such as "PopReceiptMismatch"; "" if none
	RequestID string // the service's x-ms-request-id; "" if none

	// RetryAfter is how long the service asks to wait before the next request, by the header
	// Retry-After of a 429 or 503. It is 0 if it does not say. With [ErrLimited] it is how long to
	// wait for the limit, and 0 means no wait. The request may then be refused again, because others
	// share the limit.
	RetryAfter time.Duration

	Detail string // what is wrong, for people
	Hint   string // what to do about it; "" if there is nothing to say
	Err    error  // underlying error without secrets; nil if none
}

// Error returns all of it on one line.
func (e *Error) Error() string {
	subject := e.Op
	if e.Op != "" && e.Queue != (Name{}) {
		subject += fmt.Sprintf(" on %v", e.Queue)
	}
	if e.Op != "" && e.Message != "" {
		subject += " of message " + string(e.Message)
	}
	return e.failure().Text(subject)
}

// Unwrap returns the kind and the underlying error, for [errors.Is] and [errors.As].
func (e *Error) Unwrap() []error { return e.failure().Unwrap() }

func (e *Error) failure() serviceerror.Failure {
	return serviceerror.Failure{
		Kind: e.Kind, Status: e.Status, Code: e.Code, RequestID: e.RequestID, Detail: e.Detail, Hint: e.Hint, Err: e.Err,
	}
}
