package azurestorage

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/internal/retry"
)

// Limits are the options that the clients which repeat requests have in common.
type Limits struct {
	TryTimeout  time.Duration // of one request
	RetryFor    time.Duration // how long a request is repeated; negative means that nothing is
	Connections int           // idle ones that are kept

	unreachable time.Duration // how long a request is repeated that cannot be sent; 0 for RetryFor
}

// unreachable is how long a client waits for an emulator that does not listen. It may be starting,
// but usually it was not started.
const unreachable = time.Second

// Check refuses limits that cannot be meant. The error is a [*ParseError].
func (l Limits) Check() error {
	switch {
	case l.TryTimeout > 0 && l.TryTimeout < time.Microsecond: // probably a number without a unit
		return invalid("", "TryTimeout %v is too short for any request: give it a unit, such as %d*time.Second", l.TryTimeout, l.TryTimeout)
	case l.TryTimeout < 0:
		return invalid("", "TryTimeout %v is negative", l.TryTimeout)
	case l.RetryFor > 0 && l.RetryFor < time.Microsecond:
		return invalid("", "RetryFor %v is too short: give it a unit, such as %d*time.Second", l.RetryFor, l.RetryFor)
	case l.Connections < 0:
		return invalid("", "Connections %d is negative", l.Connections)
	}
	return nil
}

// WithDefaults returns the limits with 30 s, 2 min and 64 for those that are zero. With
// UseDevelopmentStorage=true, the default for requests that cannot be sent is 1 s. An emulator on
// another machine, such as a container that starts at the same time, has the full 2 min.
func (l Limits) WithDefaults(at Location) Limits {
	if l.TryTimeout == 0 {
		l.TryTimeout = 30 * time.Second
	}
	if l.RetryFor == 0 {
		l.RetryFor = 2 * time.Minute
		if at.development {
			l.unreachable = unreachable
		}
	}
	if l.Connections == 0 {
		l.Connections = 64
	}
	return l
}

// Repeat calls op while it fails with a transient error, for RetryFor; the key spreads the waits of different callers.
// If the end of ctx ended a wait, the error is op's last, and gaveUp is true: that end is why the call fails.
func (l Limits) Repeat(ctx context.Context, key string, transient func(error) bool, op func(context.Context) error) (gaveUp bool, err error) {
	if l.RetryFor < 0 {
		return false, op(ctx)
	}
	// The end of this context ends the waits, not a try.
	waiting, cancel := context.WithTimeout(ctx, l.RetryFor)
	defer cancel()
	begun := time.Now()
	again := func(err error) bool {
		return transient(err) && (l.unreachable == 0 || !NeverSent(err) || time.Since(begun) < l.unreachable)
	}
	err = retry.Do(waiting, key, again, func(try context.Context) error {
		return op(retry.Repeated(ctx, retry.Repeats(try)))
	})
	return err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)), err
}

// Try returns a context for one request, which ends after the time-out that it returns too.
func (l Limits) Try(ctx context.Context) (try context.Context, timeout time.Duration, cancel context.CancelFunc) {
	timeout = TryTimeout(ctx, l.TryTimeout)
	try, cancel = context.WithTimeoutCause(ctx, timeout, ErrTryTimeout)
	return try, timeout, cancel
}
