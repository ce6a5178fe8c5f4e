package dispatcher

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// DeliveryError reports a delivery that did not succeed: what happened to which message, and
// what is done with it. It is passed to Options.OnError. Package log/slog logs it as a group.
type DeliveryError struct {
	Delivery
	Outcome Outcome
	Delay   time.Duration // until the message is visible again; for Retried, Snoozed, Kept, and poison that could not be moved
	Reason  poison.Reason // why it is poison; for Poisoned, Kept, and Unsettled poison
	Err     error
}

// Error describes the error in one line.
func (e *DeliveryError) Error() string {
	what := e.Outcome.String()
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

// LogValue returns the attributes of [DeliveryError.Attrs] as a group.
func (e *DeliveryError) LogValue() slog.Value { return slog.GroupValue(e.Attrs()...) }

// Attrs returns the log attributes queue, message, job, kind, attempt, outcome, delay, reason and
// error, without those that do not apply.
func (e *DeliveryError) Attrs() []slog.Attr {
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
	Value   any       // what was passed to panic
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

// AbandonedError names the messages whose handlers or settlements still ran when a drain had to
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

// SetupError reports options that are valid by themselves but cannot work together as intended, or
// settings in the metadata of a queue that are invalid. It is passed to Options.OnError once. No
// message is lost.
type SetupError struct {
	Queue  queue.Name
	Detail string // what cannot work, and what to change
}

// Error describes the error in one line.
func (e *SetupError) Error() string { return "worker of " + e.Queue.String() + ": " + e.Detail }
