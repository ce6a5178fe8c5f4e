package blob

import (
	"errors"
	"fmt"
	"strings"
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
	var what []string
	if e.Op != "" && e.Ref == (Ref{}) {
		what = append(what, e.Op)
	} else if e.Op != "" {
		what = append(what, e.Op+" "+e.Ref.String())
	}
	if e.Kind != nil {
		what = append(what, e.Kind.Error())
	}
	if e.Detail != "" {
		what = append(what, e.Detail)
	}
	text := strings.Join(what, ": ")
	if e.Status != 0 {
		var status strings.Builder
		fmt.Fprintf(&status, " (%d", e.Status)
		if e.Code != "" {
			status.WriteString(" " + e.Code)
		}
		if e.RequestID != "" {
			status.WriteString(", request " + e.RequestID)
		}
		text += status.String() + ")"
	}
	if e.Err != nil {
		text = strings.TrimPrefix(text+": "+e.Err.Error(), ": ")
	}
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

// Unwrap returns the kind and the underlying error, for [errors.Is] and [errors.As].
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

// failure adds what was attempted on which blob; nil stays nil.
func failure(op string, ref Ref, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Ref: ref, Err: err}
}
