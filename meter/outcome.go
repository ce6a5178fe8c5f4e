package meter

import (
	"context"
	"errors"

	"github.com/millrace/millrace/queue"
)

// outcome is how a request ended. Each request has one, so that it costs one addition to count it.
type outcome uint8

const (
	done      outcome = iota
	empty             // a dequeue without messages
	throttled         // the service was busy
	unreached         // the service was not reached, or there was no token to ask it with
	failed            // any other error
	outcomes          // how many there are

	unsent = outcomes // nothing was sent: the request does not count
)

// outcomeOf returns how a request with this error ended.
func outcomeOf(err error) outcome {
	if err == nil {
		return done
	}
	var e *queue.Error
	answered := errors.As(err, &e) && e.Status != 0
	switch {
	case errors.Is(err, queue.ErrThrottled):
		return throttled
	case answered || errors.Is(err, queue.ErrOutcomeUnknown):
		return failed
	case errors.Is(err, queue.ErrUnavailable), errors.Is(err, queue.ErrUnauthorized):
		return unreached
	// By the port, a context that had ended sends nothing and leaves no outcome unknown, and
	// arguments are refused without a request where no response says so. A limit sends nothing either.
	case errors.Is(err, queue.ErrLimited), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, queue.ErrInvalid), errors.Is(err, queue.ErrTooLarge):
		return unsent
	}
	return failed
}
