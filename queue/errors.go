package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	// Retry-After of a 429 or 503. It is 0 if it does not say.
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

// Explain returns err as an [*Error] that says what was attempted on which queue and message. If
// err contains an *Error, Explain returns a copy of that one.
func Explain(err error, op string, name Name, id ID) *Error {
	e := &Error{Err: err}
	if known := (*Error)(nil); errors.As(err, &known) {
		c := *known
		e = &c
	}
	e.Op, e.Queue, e.Message = op, name, id
	return e
}

// ErrLimited means that a limit which the program has set itself does not allow the request now.
// Nothing was sent. Every [*LimitedError] is one.
var ErrLimited = errors.New("limited")

// LimitedError is the error of a request that a limit of the program holds back, such as a dequeue of a
// queue of package queue/limits. It is no failure: nothing was sent, and the service was not asked. A
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

// Cause is why a request is sent, for those who count requests, such as package metered: an update may
// be a renewal, a give-back or a save. It travels in the context; see [WithCause]. The zero value is
// [CauseUnknown].
type Cause uint8

// The causes. Each request has one.
const (
	CauseUnknown  Cause = iota // nobody said why
	CauseFetch                 // a listener takes messages
	CauseRenew                 // a lease is renewed while its handler runs
	CauseSave                  // a handler saves its progress
	CauseStart                 // the start of a handler is recorded, after deliveries that ended in nothing
	CauseGiveBack              // a message is made visible again, now or after a delay
	CauseDelete                // a message is deleted: its job is done, discarded or a duplicate
	CausePoison                // a message is copied to the poison queue, deleted after that, or kept hidden as poison
	CauseDepth                 // the depth is read, to decide how many loops are needed or whether to wake workers
	CauseMetadata              // metadata are read or written
	CauseCreate                // a queue that is missing is created
	CauseSend                  // a producer sends a job
	CauseCancel                // a producer deletes a job that it sent
	CauseBrowse                // messages are looked at
	CauseRedrive               // a redrive reads, sends and deletes
	CausePurge                 // a purge reads and deletes
	CauseSyphon                // messages are brought home from backlog queues
	CauseLimit                 // tokens of a limit are taken, kept or given back
	CauseBeacon                // an instance reports in a control queue, or the reports are read
)

// causeNames are the names by cause. They are words of logs and JSON and must not change.
var causeNames = [...]string{
	CauseUnknown: "unknown", CauseFetch: "fetch", CauseRenew: "renew", CauseSave: "save", CauseStart: "start",
	CauseGiveBack: "giveback", CauseDelete: "delete", CausePoison: "poison", CauseDepth: "depth",
	CauseMetadata: "metadata", CauseCreate: "create", CauseSend: "send", CauseCancel: "cancel",
	CauseBrowse: "browse", CauseRedrive: "redrive", CausePurge: "purge", CauseSyphon: "syphon", CauseLimit: "limit",
	CauseBeacon: "beacon",
}

// Causes returns all causes, each at the index of its number.
func Causes() []Cause {
	all := make([]Cause, len(causeNames))
	for i := range all {
		all[i] = Cause(i)
	}
	return all
}

// String returns the name of the cause, such as "fetch".
func (c Cause) String() string {
	if int(c) >= len(causeNames) {
		return fmt.Sprintf("Cause(%d)", int(c))
	}
	return causeNames[c]
}

// MarshalText returns the name of the cause, for JSON and logs. A cause that does not exist is an error.
func (c Cause) MarshalText() ([]byte, error) {
	if int(c) >= len(causeNames) {
		return nil, fmt.Errorf("queue: %v is no cause", c)
	}
	return []byte(c.String()), nil
}

// UnmarshalText parses what [Cause.MarshalText] returns.
func (c *Cause) UnmarshalText(text []byte) error {
	if i := slices.Index(causeNames[:], string(text)); i >= 0 {
		*c = Cause(i)
		return nil
	}
	return fmt.Errorf("queue: no cause has the name %q", text)
}

// request is what a context says of the requests that are sent with it.
type request struct {
	cause   Cause
	repeats int
}

// requestContext is a context that says it. It is a type of its own because each request is looked
// at: where it is the outermost context that costs next to nothing, unlike a search for a value.
type requestContext struct {
	context.Context
	request request
}

type requestKey struct{}

// Value implements [context.Context].
func (c *requestContext) Value(key any) any {
	if key == (requestKey{}) {
		return c
	}
	return c.Context.Value(key)
}

func requestOf(ctx context.Context) request {
	c, ok := ctx.(*requestContext)
	if !ok {
		if c, ok = ctx.Value(requestKey{}).(*requestContext); !ok {
			return request{}
		}
	}
	return c.request
}

// WithCause returns a context for requests with this cause. What the context says of repeats stays.
// It allocates: a program that sends many requests with one cause should keep the context.
func WithCause(ctx context.Context, c Cause) context.Context {
	r := requestOf(ctx)
	r.cause = c
	return &requestContext{ctx, r}
}

// CauseOf returns the cause of requests with this context, [CauseUnknown] if nobody set one.
func CauseOf(ctx context.Context) Cause { return requestOf(ctx).cause }

// WithRepeats returns a context for a request that was sent n times before, and failed each time. The
// cause stays. A queue that bounds its requests may give a repeated one more time, because the time
// before may have been too short. An n below 0 counts as 0.
func WithRepeats(ctx context.Context, n int) context.Context {
	r := requestOf(ctx)
	if n = max(n, 0); n == r.repeats {
		return ctx
	}
	r.repeats = n
	return &requestContext{ctx, r}
}

// Repeats returns how often the request of this context was sent before.
func Repeats(ctx context.Context) int { return requestOf(ctx).repeats }
