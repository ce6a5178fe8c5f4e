package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/queue"
)

// Why a handler's context ended: context.Cause returns one of these.
var (
	// ErrLeaseLost is queue.ErrLeaseLost: the service says that the message is somebody
	// else's, or gone. The handler's result settles nothing.
	ErrLeaseLost = queue.ErrLeaseLost

	// ErrLeaseExpired means that the lease could not be renewed in time by our
	// own clock. A handler that still succeeds tries one delete.
	ErrLeaseExpired = errors.New("lease expired: it could not be renewed in time")

	// ErrTimeout means that the handler's time is up. It counts as a failure, and matches
	// context.DeadlineExceeded as well.
	ErrTimeout error = timeoutError{}

	// ErrStopping means that the worker is stopping and its grace period is over.
	// The message is given back at once and no attempt is recorded.
	ErrStopping = errors.New("worker is stopping")
)

// timeoutError is [ErrTimeout].
type timeoutError struct{}

func (timeoutError) Error() string { return "handler time-out" }

// Timeout makes it what package net calls a time-out.
func (timeoutError) Timeout() bool { return true }

// Is matches what a context says whose deadline has passed.
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// overdueError is the error of a handler whose time was up. It matches [ErrTimeout] without
// being joined with it: a snooze after the time-out is still a snooze.
type overdueError struct {
	after time.Duration
	err   error
}

func (e *overdueError) Error() string {
	return fmt.Sprintf("%v after %v: %v", ErrTimeout, e.after, e.err)
}

func (e *overdueError) Is(target error) bool { return errors.Is(ErrTimeout, target) }

func (e *overdueError) Unwrap() error { return e.err }
