package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/millrace/millrace/internal/hook"
)

// An error of the user's is asked for its text, and whether it is one of ours. Its methods
// are the user's: those of a nil pointer, which in an error is not nil, usually panic. So
// it is asked with care, here and nowhere else.

// sound returns the error that a handler or a codec returned, or, if its methods panic, one
// that says so and asks for the same. From there on everybody can ask it, hooks and logs
// too.
func safeError(who string, err error) error {
	if err == nil {
		return nil
	}
	fault := callMethods(err)
	if fault == nil {
		return err
	}
	var replaced error
	if p, ok := err.(*PanicError); ok && p != nil { //nolint:errorlint // call has just made it
		replaced = &PanicError{Value: fmt.Sprintf("%v (a %T)", p.Value, p.Value), Stack: p.Stack}
	} else {
		bad := culprit(err)
		replaced = &brokenError{text: describe(who, bad, callMethods(bad)), fault: fault}
	}
	var said *handlerResult
	hook.Run(func() { said = findResult(err) })
	if said != nil {
		replaced = &handlerResult{err: replaced, outcome: said.outcome, delay: said.delay}
	}
	return replaced
}

// examine asks the error and all that it wraps what is ever asked of one, and returns how
// that failed, or nil.
func callMethods(err error) *hook.Failure {
	return hook.Run(func() {
		_ = err.Error()
		_ = findResult(err)
		_ = errors.Is(err, context.Canceled)
		errors.As(err, new(*brokenError))
	})
}

// culprit returns the innermost of what the error wraps whose methods fail.
func culprit(err error) error {
	var inner []error
	hook.Run(func() {
		switch e := err.(type) { //nolint:errorlint // one level at a time
		case interface{ Unwrap() error }:
			inner = append(inner, e.Unwrap())
		case interface{ Unwrap() []error }:
			inner = e.Unwrap()
		}
	})
	for _, one := range inner {
		if one != nil && callMethods(one) != nil {
			return culprit(one)
		}
	}
	return err
}

// saidBy returns what the handler asked for explicitly, or nil.
func explicitResult(err error) (said *handlerResult) {
	defer func() { _ = recover() }() // what panics has said nothing
	return findResult(err)
}

// isCanceled tells whether the error is that of a cancelled context.
func isCanceled(err error) (is bool) {
	defer func() { _ = recover() }()
	return errors.Is(err, context.Canceled)
}

// unsoundError stands for an error whose methods panic.
type brokenError struct {
	text  string
	fault *hook.Failure
}

func (e *brokenError) Error() string { return e.text }

// Unwrap returns the panic, for its stack; its value is a text, whose methods are ours.
func (e *brokenError) Unwrap() error {
	return &PanicError{Value: fmt.Sprint(e.fault.Value), Stack: e.fault.Stack}
}

// describe says what is wrong with an error whose methods fail.
func describe(who string, bad error, fault *hook.Failure) string {
	what := "panic"
	switch {
	case fault == nil: // not each time
	case fault.Value == nil:
		what = "call runtime.Goexit"
	default:
		what = fmt.Sprintf("panic: %v", fault.Value)
	}
	if v := reflect.ValueOf(bad); v.Kind() == reflect.Pointer && v.IsNil() {
		return fmt.Sprintf("%s returned a nil %T, which as an error is not nil (return nil itself); its methods %s", who, bad, what)
	}
	return fmt.Sprintf("%s returned an error of type %T whose methods %s", who, bad, what)
}
