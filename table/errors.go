package table

import (
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/internal/serviceerror"
)

// Errors of every store. Match them with [errors.Is]; [errors.As] finds the [*Error] that carries one.
var (
	// ErrMissing means that the entity does not exist.
	ErrMissing = errors.New("entity does not exist")

	// ErrExists means that an entity with this key exists already.
	ErrExists = errors.New("entity already exists")

	// ErrPreconditionFailed means that another writer has changed the entity since it was read. Read it again,
	// apply the change to what it is now, and write it, as [Modify] does.
	ErrPreconditionFailed = errors.New("entity was changed since it was read")

	// ErrTooLarge means that an entity, a value or a group of changes exceeds a limit of the service.
	ErrTooLarge = errors.New("too large")

	// ErrUnavailable means that the store was busy or failing, or did not respond. The same call may succeed
	// later; a change may have taken effect.
	ErrUnavailable = errors.New("store unavailable")

	// ErrUnauthorized means that authentication or authorization failed. Waiting does not help.
	ErrUnauthorized = errors.New("unauthorized")

	// ErrInvalid means that arguments are invalid, or that the store refused them.
	ErrInvalid = errors.New("invalid argument")
)

// Transient reports whether the same call may succeed later. A change may have taken effect.
func Transient(err error) bool { return errors.Is(err, ErrUnavailable) }

// Error is a failed operation: what was attempted, on which entity, what the store said, and what to do. It
// contains no key of an account and no signature.
type Error struct {
	Op    string // operation, such as "insert"
	Table string // name of the table
	Key   Key    // entity of the operation; of a group, of the change that failed; of a query, only its partition

	Kind error // a sentinel of this package; nil if none fits, or Err is one

	Status    int    // HTTP status; 0 if there was no response
	Code      string // storage error code, such as "UpdateConditionNotSatisfied"; "" if none
	RequestID string // the service's x-ms-request-id; "" if none

	Detail string // what is wrong, for people
	Hint   string // what to do about it; "" if there is nothing to say
	Err    error  // underlying error without secrets; nil if none
}

// Error returns all of it on one line.
func (e *Error) Error() string {
	return e.failure().Text(e.subject())
}

// Unwrap returns the kind and the underlying error, for [errors.Is] and [errors.As].
func (e *Error) Unwrap() []error { return e.failure().Unwrap() }

func (e *Error) failure() serviceerror.Failure {
	return serviceerror.Failure{
		Kind: e.Kind, Status: e.Status, Code: e.Code, RequestID: e.RequestID, Detail: e.Detail, Hint: e.Hint, Err: e.Err,
	}
}

// subject says what was attempted on which entity. A refused key may be any text, so it is quoted and cut.
func (e *Error) subject() string {
	parts := []string{}
	if e.Op != "" {
		parts = append(parts, e.Op)
	}
	if e.Table != "" {
		parts = append(parts, e.Table)
	}
	if e.Key != (Key{}) {
		parts = append(parts, fmt.Sprintf("%.200q", e.Key.String()))
	}
	return strings.Join(parts, " ")
}

func invalid(hint, format string, args ...any) error {
	return &Error{Kind: ErrInvalid, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

func tooLarge(hint, format string, args ...any) error {
	return &Error{Kind: ErrTooLarge, Detail: fmt.Sprintf(format, args...), Hint: hint}
}

// Explain adds what was attempted on which entity to an error of a store; nil stays nil. An error of this package's
// checks, which says only what is wrong, is completed, and keeps a key that it names; every other error is wrapped. It
// is for authors of stores.
func Explain(op, table string, k Key, err error) error {
	if err == nil {
		return nil
	}
	e := &Error{Err: err}
	// An error in the chain of another one is not taken out of it: the text around it would be lost.
	if bare, ok := err.(*Error); ok && bare.Op == "" { //nolint:errorlint // see above
		c := *bare
		e = &c
	}
	e.Op, e.Table = op, table
	if e.Key == (Key{}) {
		e.Key = k
	}
	return e
}
