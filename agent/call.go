package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/hook"
)

var errHangs = errors.New("the call does not return although its context has ended")

// caller makes calls that may hang or panic: of a queue, an actuator or a file system. It makes one at a time: while one hangs, others
// fail at once. Only one goroutine may use it.
type caller[T any] struct {
	running chan outcome[T] // gets the outcome of a call that was given up; nil if there is none
	since   time.Time       // when that began
}

// outcome is what a call came to.
type outcome[T any] struct {
	value   T
	err     error
	failure *hook.Failure
}

// call calls f on a goroutine of its own, with a context that ends after timeout, and waits until it returns. If it does not return
// within [patience] of the end of its context, call fails without it.
func (c *caller[T]) call(ctx context.Context, timeout time.Duration, f func(context.Context) (T, error)) (T, error) {
	if !c.idle() {
		var none T
		return none, fmt.Errorf("%w since %v: nothing else is tried before it returns", errHangs, c.since.Format(time.TimeOnly))
	}
	begin := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no response within %v: %w", timeout, context.DeadlineExceeded))
	done := make(chan outcome[T], 1) // buffered: nobody may receive
	go func() {                      // given up when it hangs; wait waits for it
		defer cancel()
		var o outcome[T]
		o.failure = hook.Run(func() { o.value, o.err = f(ctx) })
		done <- o
	}()
	select {
	case o := <-done:
		return o.result(ctx)
	case <-ctx.Done():
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case o := <-done:
		return o.result(ctx)
	case <-timer.C:
	}
	c.running, c.since = done, begin
	var none T
	return none, errHangs
}

// result returns what the call returned, or its panic as an error.
func (o outcome[T]) result(ctx context.Context) (value T, err error) {
	switch {
	case o.failure != nil:
		return value, panicked(o.failure)
	case o.err != nil && errors.Is(o.err, context.DeadlineExceeded) && context.Cause(ctx) != nil:
		return value, fmt.Errorf("%w (%w)", context.Cause(ctx), o.err)
	}
	return o.value, o.err
}

// idle reports whether no call hangs.
func (c *caller[T]) idle() bool {
	select {
	case <-c.running:
		c.running = nil
	default:
	}
	return c.running == nil
}

// wait waits until no call hangs, or until end is closed, and reports whether none does.
func (c *caller[T]) wait(end <-chan struct{}) bool {
	if c.running == nil {
		return true
	}
	select {
	case <-c.running:
		c.running = nil
		return true
	case <-end:
		return c.idle()
	}
}
