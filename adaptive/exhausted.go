package adaptive

import (
	"context"
	"errors"

	"github.com/millrace/millrace/dispatcher"
)

// ErrExhausted says that what a handler depends on has no room for more at the moment: a 429 or 503 of a service, a
// connection pool without a free connection. See [Exhausted].
var ErrExhausted = errors.New("the dependency is exhausted")

// Exhausted returns an error that matches both err and [ErrExhausted]. A handler returns it when its dependency says that it
// is asked for too much. Of nil it is ErrExhausted itself.
func Exhausted(err error) error {
	if err == nil {
		return ErrExhausted
	}
	return &exhaustedError{err}
}

type exhaustedError struct{ err error }

func (e *exhaustedError) Error() string { return ErrExhausted.Error() + ": " + e.err.Error() }

func (e *exhaustedError) Unwrap() error { return e.err }

func (e *exhaustedError) Is(target error) bool { return target == ErrExhausted }

// verdict is what the result of a handler says about its dependency.
type verdict int

const (
	silent    verdict = iota // nothing: it failed for another reason, was interrupted, or did not run to its end
	coped                    // it did what was asked
	timedOut                 // it took too long
	exhausted                // it said that it was asked for too much
)

// judge returns what an error says about the dependency. A job that is rejected or discarded for what it is was answered; a
// snooze may come before any call.
func (l *Limit) judge(ctx context.Context, err error) verdict {
	if err == nil {
		return coped
	}
	if errors.Is(err, ErrExhausted) || l.saysExhausted(err) {
		return exhausted
	}
	switch dispatcher.ResultOf(err).Outcome {
	case dispatcher.Discarded, dispatcher.Poisoned:
		return coped
	case dispatcher.Snoozed:
		return silent
	}
	switch cause := context.Cause(ctx); {
	case cause != nil && !errors.Is(cause, context.DeadlineExceeded):
		return silent // the worker stops, or has lost the message
	case cause != nil, errors.Is(err, context.DeadlineExceeded):
		return timedOut
	}
	return silent
}
