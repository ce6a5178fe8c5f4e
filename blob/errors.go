package blob

import (
	"errors"

	"github.com/millrace/millrace/internal/serviceerror"
)

// Errors of every store. Match them with [errors.Is]; [errors.As] finds the [*Error] that
// carries one.
var (
	// ErrMissing means that the blob does not exist.
	ErrMissing = errors.New("blob does not exist")

	// ErrExists means that the blob exists already.
	ErrExists = errors.New("blob already exists")

	// ErrChanged means that the blob was replaced or deleted while it was read. Open it again.
	ErrChanged = errors.New("blob was replaced or deleted while it was read")

	// ErrUnavailable means that the store was busy or failing, or did not respond. The same call
	// may succeed later; a change may have taken effect.
	ErrUnavailable = errors.New("store unavailable")

	// ErrUnauthorized means that authentication or authorization failed. Waiting does not help.
	ErrUnauthorized = errors.New("unauthorized")

	// ErrInvalid means that arguments are invalid, or that the store refused them.
	ErrInvalid = errors.New("invalid argument")
)

// Transient reports whether the same call may succeed later. A change may have taken effect.
func Transient(err error) bool { return errors.Is(err, ErrUnavailable) }

// Error is a failed operation: what was attempted, on which blob, what the store said, and what
// to do. It contains no key and no signature.
type Error struct {
	Op  string // operation, such as "put"
	Ref Ref    // blob of the operation; of a list or a container, Name is the prefix or ""

	Kind error // a sentinel of this package; nil if none fits, or Err is one

	Status    int    // HTTP status; 0 if there was no response
	Code      string // storage error code, such as "BlobNotFound"; "" if none
	RequestID string // the service's x-ms-request-id; "" if none

	Detail string // what is wrong, for people
	Hint   string // what to do about it; "" if there is nothing to say
	Err    error  // underlying error without secrets; nil if none
}

// Error returns all of it on one line.
func (e *Error) Error() string {
	subject := e.Op
	if e.Op != "" && e.Ref != (Ref{}) {
		subject += " " + e.Ref.String()
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

// failure adds what was attempted on which blob; nil stays nil.
func failure(op string, ref Ref, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Ref: ref, Err: err}
}
