package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// DeliveryError reports a delivery that did not succeed: the message, its error, and the outcome.
// It is passed to Options.OnError. Package log/slog logs it as a group.
type DeliveryError struct {
	Delivery
	Outcome Outcome
	Delay   time.Duration // until the message is visible again; for Retried, Snoozed, Kept, and poison that could not be moved
	Reason  poison.Reason // why it is poison; for Poisoned, Kept, and Unsettled poison
	Err     error
}

// Error describes the error in one line.
func (e *DeliveryError) Error() string {
	what := string(e.Outcome)
	switch e.Outcome {
	case Retried, Snoozed:
		what = fmt.Sprintf("%v, next delivery in %v", e.Outcome, wholeSeconds(e.Delay))
	case Poisoned:
		what = fmt.Sprintf("moved to the poison queue (%s)", e.Reason)
	case Kept:
		what = fmt.Sprintf("poison (%s), kept hidden for %v%s", e.Reason, wholeSeconds(e.Delay), e.end())
	case Unsettled:
		if e.Delay > 0 {
			what = fmt.Sprintf("poison (%s) that could not be moved, hidden for %v and then tried again%s", e.Reason, wholeSeconds(e.Delay), e.end())
		}
	}
	return fmt.Sprintf("message %s of %v, attempt %d, %s: %v", string(e.ID), e.Queue, e.Attempt, what, e.Err)
}

// end says when the message is gone, if it does not live for ever.
func (e *DeliveryError) end() string {
	if e.Expires.IsZero() || e.Expires.Year() >= 9999 {
		return ""
	}
	return ", and gone at " + e.Expires.UTC().Format(time.RFC3339)
}

// Unwrap returns Err.
func (e *DeliveryError) Unwrap() error { return e.Err }

// LogValue returns the attributes queue, message, job, kind, attempt, outcome, delay, reason and
// error, as far as they apply, as a group.
func (e *DeliveryError) LogValue() slog.Value { return slog.GroupValue(e.attrs()...) }

func (e *DeliveryError) attrs() []slog.Attr {
	attrs := append(e.Delivery.attrs(), slog.Any("outcome", e.Outcome))
	switch {
	case e.Outcome == Retried, e.Outcome == Snoozed, e.Outcome == Kept, e.Outcome == Unsettled && e.Delay > 0:
		attrs = append(attrs, slog.Duration("delay", wholeSeconds(e.Delay)))
	}
	if e.Reason != "" {
		attrs = append(attrs, slog.String("reason", string(e.Reason)))
	}
	if e.Err != nil {
		attrs = append(attrs, slog.Any("error", e.Err))
	}
	return attrs
}

// PanicError is the error of a handler that panicked.
type PanicError struct {
	Value   any       // the argument of panic
	Stack   []byte    // the goroutine's stack at that point
	Callers []uintptr // the same for runtime.CallersFrames; at most 64
}

// caughtPanic returns the error for a panic, for the deferred call that recovered value.
func caughtPanic(value any) *PanicError {
	f := hook.Caught("", value)
	return &PanicError{Value: f.Value, Stack: f.Stack, Callers: f.Callers}
}

// Error returns the text of the panic, without the stack.
func (e *PanicError) Error() string { return fmt.Sprintf("handler panicked: %v", e.Value) }

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// stackOf returns the stack of the panic that the error is of, or nil.
func stackOf(err error) []byte {
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

var errGoexit = errors.New("handler called runtime.Goexit")

// AbandonedError names the messages that were still being handled or settled when a drain had to
// end. They are delivered again when their leases end.
type AbandonedError struct {
	Queue    queue.Name
	Messages []queue.ID
}

// Error describes the error in one line.
func (e *AbandonedError) Error() string {
	ids := e.Messages
	more := ""
	if len(ids) > 10 {
		more = fmt.Sprintf(" and %d more", len(ids)-10)
		ids = ids[:10]
	}
	return fmt.Sprintf("%d handlers of %v did not stop in time: abandoned %v%s; their messages are delivered again when their leases end; let handlers watch their context",
		len(e.Messages), e.Queue, ids, more)
}

// SetupError reports options that are valid one by one but cannot work together as intended, or
// settings in the metadata of a queue that are invalid. It is passed to Options.OnError once. No
// message is lost.
type SetupError struct {
	Queue  queue.Name
	Detail string // the problem, and how to solve it
}

// Error describes the error in one line.
func (e *SetupError) Error() string { return "worker of " + e.Queue.String() + ": " + e.Detail }

// Causes of the end of a handler's context, as context.Cause returns them.
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

	// ErrStopping means that the worker is stopping and its grace period is over. The message is
	// given back immediately, without recording an attempt.
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

// maxItemErrors is how many errors of items the text of a [GroupError] has.
const maxItemErrors = 3

// GroupError is the error of a group of jobs if not every handler returned nil. It wraps the errors
// of the items.
type GroupError struct {
	Items  int           // of the group
	Errors map[int]error // of the items that were handled, by their indexes, from 0
	Failed int           // items that failed for good at earlier deliveries
	Before string        // why the first of them failed, shortened; may be empty
	Left   int           // items that were not handled, because the context ended
}

func itemText(item int, err error) string { return fmt.Sprintf("item %d: %v", item, err) }

// Error describes the group in one line, with the first errors.
func (e *GroupError) Error() string {
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(len(e.Errors), "ended with errors")
	add(e.Failed, "failed for good at earlier deliveries ("+e.Before+")")
	add(e.Left, "were not handled")
	text := fmt.Sprintf("of %d items %s", e.Items, strings.Join(parts, ", "))
	items := slices.Sorted(maps.Keys(e.Errors))
	for _, item := range items[:min(len(items), maxItemErrors)] {
		text += "; " + itemText(item, e.Errors[item])
	}
	if more := len(e.Errors) - maxItemErrors; more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// Unwrap returns the errors of the items, in order.
func (e *GroupError) Unwrap() []error {
	errs := make([]error, 0, len(e.Errors))
	for _, item := range slices.Sorted(maps.Keys(e.Errors)) {
		errs = append(errs, e.Errors[item])
	}
	return errs
}

// HookError reports a panic in a function of the Options. The dispatcher continues with the
// default of that function, and no message is lost. It is passed to Options.OnError immediately,
// and then at most every ten seconds per hook.
type HookError struct {
	Queue   queue.Name
	Hook    string    // the field of the options, such as "Observer.Started" or "Codec.Decode"
	Value   any       // passed to panic
	Stack   []byte    // the goroutine's stack at that point
	Callers []uintptr // the same for runtime.CallersFrames; at most 64
	Times   int       // failures since the last report, this one included; at least 1
}

// Error describes the failure in one line, without the stack.
func (e *HookError) Error() string {
	what := fmt.Sprintf("panicked: %v", e.Value)
	if e.Times > 1 {
		what += fmt.Sprintf(" (%d times since the last report)", e.Times)
	}
	return fmt.Sprintf("hook %s of %v %s", e.Hook, e.Queue, what)
}

func newHookError(of queue.Name, f hook.Failure) *HookError {
	return &HookError{Queue: of, Hook: f.Hook, Value: f.Value, Stack: f.Stack, Callers: f.Callers, Times: f.Times}
}

// StuckError reports a handler that still runs long after its context has ended. It is passed
// to Options.OnError.
type StuckError struct {
	Queue   queue.Name
	ID      queue.ID
	Cause   error         // why its context ended
	For     time.Duration // how long ago
	GivenUp bool          // whether its slot was freed

	// Stacks has the stacks of all goroutines that run handlers of the queue in this process, and
	// of the goroutines that these have started. Equal stacks are shown once, with their number.
	// They may be truncated.
	Stacks []byte
}

// Error describes the handler in one line, without the stacks.
func (e *StuckError) Error() string {
	what := "its slot stays taken"
	if e.GivenUp {
		what = "its slot was freed for another"
	}
	return fmt.Sprintf("handler of message %s of %v still runs %v after its context ended: %s; let handlers watch their context: %v",
		string(e.ID), e.Queue, e.For, what, e.Cause)
}

// Unwrap returns Cause.
func (e *StuckError) Unwrap() error { return e.Cause }
