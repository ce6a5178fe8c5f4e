package listener

import (
	"context"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/scaling"
)

// What handlers say, what becomes of messages, and what options and hooks are made of, so
// that programs import this package and one queue. Each name is that of package dispatcher,
// poison or scaling.

// Outcome is how a delivery ended. See dispatcher.Outcome.
type Outcome = dispatcher.Outcome

// The outcomes.
const (
	Deleted   = dispatcher.Deleted   // the handler succeeded and the message was deleted
	Retried   = dispatcher.Retried   // the handler failed and the message was given back with a delay
	Discarded = dispatcher.Discarded // the handler had no use for the message, which was deleted
	Poisoned  = dispatcher.Poisoned  // the message was copied to the poison queue and deleted
	Kept      = dispatcher.Kept      // the message is poison, and stays hidden where it is
	Snoozed   = dispatcher.Snoozed   // the message was given back for later, and no attempt was recorded
	GivenBack = dispatcher.GivenBack // the message was not handled to an end and is visible again
	Lost      = dispatcher.Lost      // the lease was lost: somebody else has the message, or will
	Unsettled = dispatcher.Unsettled // the service would not take the settlement: the message will be delivered again
)

// Result is what the error of a handler asks for. See dispatcher.Result.
type Result = dispatcher.Result

// DeliveryError is a delivery that did not end well. See dispatcher.DeliveryError.
type DeliveryError = dispatcher.DeliveryError

// PanicError is a panic in a handler. See dispatcher.PanicError.
type PanicError = dispatcher.PanicError

// StuckError is a handler that ignores the end of its context. See dispatcher.StuckError.
type StuckError = dispatcher.StuckError

// HookError is a panic in a function of the options. See dispatcher.HookError.
type HookError = dispatcher.HookError

// SetupError is a setup that cannot work as meant. See dispatcher.SetupError.
type SetupError = dispatcher.SetupError

// AbandonedError names handlers that still ran when a drain had to end. See
// dispatcher.AbandonedError.
type AbandonedError = dispatcher.AbandonedError

// Why a handler's context ended: context.Cause returns one of these.
var (
	ErrLeaseLost    = dispatcher.ErrLeaseLost    // the message is somebody else's, or gone
	ErrLeaseExpired = dispatcher.ErrLeaseExpired // the lease could not be renewed in time
	ErrTimeout      = dispatcher.ErrTimeout      // the handler's time is up
	ErrStopping     = dispatcher.ErrStopping     // the worker is stopping and its grace period is over
)

// Idle says how long a loop waits between polls of an empty queue. See scaling.Idle.
type Idle = scaling.Idle

// Load is what Options.QueueWorkDetected is told. See scaling.Load.
type Load = scaling.Load

// PoisonPolicy says when a message is poison and where it goes. See poison.Policy.
type PoisonPolicy = poison.Policy

// PoisonReason says why a message is poison, in one word. Package poison names them all.
type PoisonReason = poison.Reason

// Visibility bounds how long a dequeued message is hidden. See dispatcher.Visibility.
type Visibility = dispatcher.Visibility

// FixedVisibility returns a visibility that does not follow the handling time. Less than
// 5 s is raised to 5 s.
func FixedVisibility(d time.Duration) Visibility { return dispatcher.Fixed(d) }

// Retry returns an error that gives the message back for another attempt after the delay,
// in place of the retry curve. It is bounded by the longest visibility and the message's
// remaining life; a negative delay means at once. A message out of attempts is poison all
// the same.
func Retry(delay time.Duration, err error) error { return dispatcher.Retry(delay, err) }

// Snooze returns an error that gives the message back for later and records no attempt:
// it is not the job that failed, it is only too early. A message without an envelope
// cannot tell the difference: its dequeue count rises all the same (see Options.Adopt).
func Snooze(delay time.Duration) error { return dispatcher.Snooze(delay) }

// Poison returns an error that moves the message to the poison queue now: no further
// attempt would help.
func Poison(err error) error { return dispatcher.Poison(err) }

// Discard returns an error that deletes the message though it was not handled: nobody
// needs it any more.
func Discard(err error) error { return dispatcher.Discard(err) }

// RetryCurve is the default of Options.RetryDelay: attempt⁴ seconds ± 10 %, at most an
// hour. See dispatcher.RetryCurve.
func RetryCurve(attempt int) time.Duration { return dispatcher.RetryCurve(attempt) }

// Delivery describes one delivery of a message to what does not know its type. See
// dispatcher.Delivery.
type Delivery = dispatcher.Delivery

// DeliveryFrom returns the delivery whose handler runs under ctx. See
// dispatcher.DeliveryFrom.
func DeliveryFrom(ctx context.Context) (Delivery, bool) { return dispatcher.DeliveryFrom(ctx) }

// ResultOf reads what a handler's error asks for, so that middleware can tell a snooze
// from a failure. See dispatcher.ResultOf for joined and nested errors.
func ResultOf(err error) Result { return dispatcher.ResultOf(err) }

// BatchHandler does several jobs in one go. See dispatcher.BatchHandler.
type BatchHandler[T any] = dispatcher.BatchHandler[T]

// Batch returns a handler that collects messages and hands them to h: as soon as there
// are size of them, or when the first has waited this long. See dispatcher.Batch.
func Batch[T any](h BatchHandler[T], size int, wait time.Duration) Handler[T] {
	return dispatcher.Batch(h, size, wait)
}

// All returns a handler that gives every message to each of the handlers, one after the
// other, and answers for them together. See dispatcher.All.
func All[T any](hs ...Handler[T]) Handler[T] { return dispatcher.All(hs...) }

// Chain wraps a handler in middleware: the first is the outermost.
func Chain[T any](h Handler[T], ms ...Middleware[T]) Handler[T] { return dispatcher.Chain(h, ms...) }

// Message is one delivery of a job. See dispatcher.Message.
type Message[T any] = dispatcher.Message[T]

// Handler does one job. See dispatcher.Handler.
type Handler[T any] = dispatcher.Handler[T]

// Middleware wraps a handler. See dispatcher.Middleware.
type Middleware[T any] = dispatcher.Middleware[T]

// Interceptor is middleware that does not depend on T. See dispatcher.Interceptor.
type Interceptor = dispatcher.Interceptor
