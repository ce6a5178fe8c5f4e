package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/millrace/millrace/internal/hook"
)

// Errors of handlers and codecs have methods of the user's, which may panic: those of a nil
// pointer, which stored in an error is not nil, usually do. They are called defensively, here
// and nowhere else.

// safeError returns the error of a handler or a codec. If its methods panic it returns an error
// that says so and asks for the same result, so that all later code, hooks and logs included,
// can call its methods.
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
		replaced = &PanicError{Value: fmt.Sprintf("%v (a %T)", p.Value, p.Value), Stack: p.Stack, Callers: p.Callers}
	} else {
		bad := culprit(err)
		replaced = &brokenError{text: describe(who, bad, callMethods(bad)), fault: fault}
	}
	var said *resultError
	hook.Run(func() { said = findResult(err) })
	if said != nil {
		replaced = &resultError{err: replaced, outcome: said.outcome, delay: said.delay, uncalled: said.uncalled}
	}
	return replaced
}

// callMethods calls every method of the error, and of what it wraps, that is used later, and
// returns how that failed, or nil.
func callMethods(err error) *hook.Failure {
	return hook.Run(func() {
		_ = err.Error()
		_ = findResult(err)
		_ = errors.Is(err, context.Canceled)
		errors.As(err, new(*brokenError))
	})
}

// culprit returns the innermost wrapped error whose methods fail.
func culprit(err error) error {
	var inner []error
	hook.Run(func() {
		switch e := err.(type) { //nolint:errorlint // unwraps one level at a time
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

// explicitResult returns the result that the error asks for explicitly, or nil.
func explicitResult(err error) (said *resultError) {
	defer func() { _ = recover() }() // an error whose methods panic asks for nothing
	return findResult(err)
}

// isCanceled reports whether the error wraps context.Canceled.
func isCanceled(err error) (is bool) {
	defer func() { _ = recover() }()
	return errors.Is(err, context.Canceled)
}

// stackOf returns the stack of the panic that the error is of, or nil. The error's methods may
// panic now, though they did not before.
func stackOf(err error) (stack []byte) {
	defer func() { _ = recover() }()
	var (
		panicked *PanicError
		failed   *HookError
	)
	switch {
	case errors.As(err, &panicked):
		return panicked.Stack
	case errors.As(err, &failed):
		return failed.Stack
	}
	return nil
}

// brokenError replaces an error whose methods panic.
type brokenError struct {
	text  string
	fault *hook.Failure
}

func (e *brokenError) Error() string { return e.text }

// Unwrap returns the panic for its stack. Its value is a text, whose methods are safe.
func (e *brokenError) Unwrap() error {
	return &PanicError{Value: fmt.Sprint(e.fault.Value), Stack: e.fault.Stack, Callers: e.fault.Callers}
}

// describe returns the text for an error whose methods fail.
func describe(who string, bad error, fault *hook.Failure) string {
	what := "panic"
	switch {
	case fault == nil: // it does not fail every time
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
