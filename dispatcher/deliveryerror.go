package dispatcher

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/poison"
)

// DeliveryError is a delivery that did not end well: what happened to which message and
// what becomes of it. It goes to Options.OnError. In a log made by package log/slog it is
// a group of fields.
type DeliveryError struct {
	Delivery
	Outcome Outcome
	Delay   time.Duration // until the message is visible again, for Retried, Snoozed and Kept
	Reason  poison.Reason // why it is poison, for Poisoned and Kept
	Err     error
}

// Error says it in one line.
func (e *DeliveryError) Error() string {
	what := e.Outcome.String()
	switch e.Outcome {
	case Retried, Snoozed:
		what = fmt.Sprintf("%v, next delivery in %v", e.Outcome, wholeSeconds(e.Delay))
	case Poisoned:
		what = fmt.Sprintf("moved to the poison queue (%s)", e.Reason)
	case Kept:
		what = fmt.Sprintf("poison (%s), kept hidden for %v", e.Reason, wholeSeconds(e.Delay))
	}
	return fmt.Sprintf("message %s of %v, attempt %d, %s: %v", string(e.ID), e.Queue, e.Attempt, what, e.Err)
}

// Unwrap returns the error underneath.
func (e *DeliveryError) Unwrap() error { return e.Err }

// LogValue gives package log/slog the fields of [DeliveryError.Attrs] as a group.
func (e *DeliveryError) LogValue() slog.Value { return slog.GroupValue(e.Attrs()...) }

// Attrs returns what there is to log, under the names queue, message, job, attempt,
// outcome, delay, reason and error; those that do not apply are left out.
func (e *DeliveryError) Attrs() []slog.Attr {
	attrs := append(e.Delivery.attrs(), slog.Any("outcome", e.Outcome))
	switch e.Outcome {
	case Retried, Snoozed, Kept:
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
