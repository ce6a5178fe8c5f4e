package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/queue"
)

// The causes with which a handler's context ends, as context.Cause returns them.
var (
	// ErrLeaseLost is queue.ErrLeaseLost: the service says that another worker has the message
	// or that it is gone. The handler's result settles nothing.
	ErrLeaseLost = queue.ErrLeaseLost

	// ErrLeaseExpired means that, by this process's clock, the lease ended before a renewal
	// succeeded. If the handler still succeeds, one delete is tried.
	ErrLeaseExpired = errors.New("lease expired: it could not be renewed in time")

	// ErrTimeout means that the handler's time-out has passed. It counts as a failed attempt.
	// It also matches context.DeadlineExceeded.
	ErrTimeout error = timeoutError{}

	// ErrStopping means that the worker is stopping and its grace period is over. The message
	// is given back at once, without recording an attempt.
	ErrStopping = errors.New("worker is stopping")
)

type timeoutError struct{}

func (timeoutError) Error() string { return "handler time-out" }

// Timeout reports true, as the time-out errors of package net do.
func (timeoutError) Timeout() bool { return true }

// Is matches context.DeadlineExceeded.
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// overdueError is the error of a handler that returned after its time-out. It matches
// [ErrTimeout] but does not join it, so that a snooze after the time-out stays a snooze.
type overdueError struct {
	after time.Duration
	err   error
}

func (e *overdueError) Error() string {
	return fmt.Sprintf("%v after %v: %v", ErrTimeout, e.after, e.err)
}

func (e *overdueError) Is(target error) bool { return errors.Is(ErrTimeout, target) }

func (e *overdueError) Unwrap() error { return e.err }
