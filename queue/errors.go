package queue

import (
	"errors"
	"fmt"
	"strings"
)

// What can go wrong, whatever the backend: match with [errors.Is]. The error
// that carries one of these is an [*Error], which [errors.As] finds.
var (
	// ErrLeaseLost is both [ErrReceiptMismatch] and [ErrMessageGone]: the
	// message is no longer ours and nothing we do settles it (B-13, Q-24).
	ErrLeaseLost = errors.New("lease lost")

	// ErrReceiptMismatch means a newer receipt exists: someone else dequeued
	// the message, or an earlier update took effect. It is an [ErrLeaseLost].
	ErrReceiptMismatch error = &leaseError{"receipt is not the newest one"}

	// ErrMessageGone means the message was deleted or has expired. It is an
	// [ErrLeaseLost].
	ErrMessageGone error = &leaseError{"message is gone"}

	// ErrThrottled means the service is busy: wait, with growing pauses (B-04).
	ErrThrottled = errors.New("throttled")

	// ErrTooLarge means the text, or the request around it, is over the limit.
	ErrTooLarge = errors.New("too large")

	// ErrQueueMissing means that there is no such queue.
	ErrQueueMissing = errors.New("queue does not exist")

	// ErrQueueExists means that the queue exists with other metadata.
	ErrQueueExists = errors.New("queue exists with other metadata")

	// ErrQueueBeingDeleted means that the name is not free yet: wait.
	ErrQueueBeingDeleted = errors.New("queue is being deleted")

	// ErrUnauthorized means that the service knows us and refuses, or does not
	// know us. Waiting does not help.
	ErrUnauthorized = errors.New("unauthorized")

	// ErrOutcomeUnknown means that no answer came: the request may have taken
	// effect or not (B-01).
	ErrOutcomeUnknown = errors.New("outcome unknown")

	// ErrUnavailable means that the service answered that it failed (a 5xx
	// that is neither busy nor a time-out) or could not be reached at all. The
	// request did not take effect as far as can be known.
	ErrUnavailable = errors.New("service unavailable")

	// ErrInvalid means that the arguments are wrong: nothing was sent, or the
	// service refused them.
	ErrInvalid = errors.New("invalid argument")
)

// leaseError is a sentinel that is also [ErrLeaseLost].
type leaseError struct{ text string }

func (e *leaseError) Error() string        { return e.text }
func (e *leaseError) Is(target error) bool { return target == ErrLeaseLost }

// Error is a failed operation: what was attempted, on which queue and message,
// what the service said, and what to do. The zero value is of no use. It never
// contains a receipt or a signature.
type Error struct {
	Op      string // the operation, such as "dequeue"; "" when only arguments were checked
	Queue   Name   // the queue it was meant for
	Message ID     // the message it was meant for; "" when none

	Kind error // one of the sentinels of this package; nil when none fits

	Status    int    // HTTP status; 0 when no answer came (B-05)
	Code      string // storage error code, such as "PopReceiptMismatch"; "" when none
	RequestID string // the service's x-ms-request-id; "" when none

	Detail string // what exactly is wrong, for people
	Hint   string // what to do about it; "" when there is nothing to say
	Err    error  // the error underneath, already free of secrets; nil when none
}

// Error says it all in one line.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Op != "" {
		b.WriteString(e.Op)
		if e.Queue != (Name{}) {
			fmt.Fprintf(&b, " on %v", e.Queue)
		}
		if e.Message != "" {
			fmt.Fprintf(&b, " of message %s", string(e.Message))
		}
		b.WriteString(": ")
	}
	var what []string
	if e.Kind != nil {
		what = append(what, e.Kind.Error())
	}
	if e.Detail != "" {
		what = append(what, e.Detail)
	}
	b.WriteString(strings.Join(what, ": "))
	if e.Status != 0 {
		fmt.Fprintf(&b, " (%d", e.Status)
		if e.Code != "" {
			b.WriteString(" " + e.Code)
		}
		if e.RequestID != "" {
			b.WriteString(", request " + e.RequestID)
		}
		b.WriteString(")")
	}
	if e.Err != nil {
		if len(what) > 0 || e.Status != 0 {
			b.WriteString(": ")
		}
		b.WriteString(e.Err.Error())
	}
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// Unwrap gives [errors.Is] and [errors.As] the kind and the error underneath.
func (e *Error) Unwrap() []error {
	var errs []error
	if e.Kind != nil {
		errs = append(errs, e.Kind)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// Explain returns err, which a check of this package or a backend returned, as
// an [*Error] that also says what was attempted on which queue and message. An
// err that is no *Error becomes the one underneath.
func Explain(err error, op string, name Name, id ID) *Error {
	e := &Error{Err: err}
	if known := (*Error)(nil); errors.As(err, &known) {
		c := *known
		e = &c
	}
	e.Op, e.Queue, e.Message = op, name, id
	return e
}
