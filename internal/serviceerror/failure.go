// Package serviceerror is the common part of the errors of queues, blobs, and tables: the answer of a service, its
// text, and the end of a context.
package serviceerror

import (
	"fmt"
	"strings"
)

// Failure is a failed operation without its subject. The fields are those of the public errors.
type Failure struct {
	Kind      error
	Status    int
	Code      string
	RequestID string
	Detail    string
	Hint      string
	Err       error
}

// Text returns the whole error on one line, in the order of the fields, behind its subject, such as "put a/b". The subject may be "".
func (f Failure) Text(subject string) string {
	var what []string
	if subject != "" {
		what = append(what, subject)
	}
	if f.Kind != nil {
		what = append(what, f.Kind.Error())
	}
	if f.Detail != "" {
		what = append(what, f.Detail)
	}
	text := strings.Join(what, ": ")
	if f.Status != 0 {
		text += fmt.Sprintf(" (%d", f.Status)
		if f.Code != "" {
			text += " " + f.Code
		}
		if f.RequestID != "" {
			text += ", request " + f.RequestID
		}
		text += ")"
	}
	if f.Err != nil {
		text = strings.TrimPrefix(text+": "+f.Err.Error(), ": ")
	}
	if f.Hint != "" {
		text += "; " + f.Hint
	}
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\r' || r == '\n' }), " ")
}

// Unwrap returns the kind and the underlying error, for [errors.Is] and [errors.As].
func (f Failure) Unwrap() []error {
	var errs []error
	for _, err := range []error{f.Kind, f.Err} {
		if err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}
