package listener

import (
	"context"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/scaling"
)

// The types and functions of packages dispatcher, poison and scaling that programs need, so
// that they import only this package and one queue.

// Outcome is how a delivery ended. See dispatcher.Outcome.
type Outcome = dispatcher.Outcome

// The outcomes.
const (
	Deleted   = dispatcher.Deleted   // the handler succeeded and the message was deleted
	Retried   = dispatcher.Retried   // the handler failed and the message was given back with a delay
	Discarded = dispatcher.Discarded // deleted unhandled: the handler asked for it
	Poisoned  = dispatcher.Poisoned  // the message was copied to the poison queue and deleted
	Kept      = dispatcher.Kept      // the message is poison and stays hidden in its queue
	Snoozed   = dispatcher.Snoozed   // the message was given back with a delay, without recording an attempt
	GivenBack = dispatcher.GivenBack // the message was not fully handled and is visible again
	Lost      = dispatcher.Lost      // the lease was lost: another worker has the message or will
	Unsettled = dispatcher.Unsettled // the settlement failed: the message will be delivered again
	Duplicate = dispatcher.Duplicate // deleted unhandled: its job was handled before
)

// Result is the request in a handler's error. See dispatcher.Result.
type Result = dispatcher.Result

// DeliveryError reports a delivery that did not succeed. See dispatcher.DeliveryError.
type DeliveryError = dispatcher.DeliveryError

// PanicError is the error of a handler that panicked. See dispatcher.PanicError.
type PanicError = dispatcher.PanicError

// StuckError reports a handler that ignores the end of its context. See dispatcher.StuckError.
type StuckError = dispatcher.StuckError

// HookError reports a panic in a function of the options. See dispatcher.HookError.
type HookError = dispatcher.HookError

// SetupError reports options that cannot work together, and invalid settings in the metadata of the
// queue. See dispatcher.SetupError.
type SetupError = dispatcher.SetupError

// AbandonedError names handlers that still ran when a drain had to end. See
// dispatcher.AbandonedError.
type AbandonedError = dispatcher.AbandonedError

// Causes of the end of a handler's context, as context.Cause returns them.
var (
	ErrLeaseLost    = dispatcher.ErrLeaseLost    // another worker has the message, or it is gone
	ErrLeaseExpired = dispatcher.ErrLeaseExpired // the lease could not be renewed in time
	ErrTimeout      = dispatcher.ErrTimeout      // the handler's time-out has passed
	ErrStopping     = dispatcher.ErrStopping     // the worker is stopping and its grace period is over
)

// LimitedSource describes what jobs have in common that keep failing. See dispatcher.LimitedSource.
type LimitedSource = dispatcher.LimitedSource

// ErrOutage means that a message waits because what it belongs to keeps failing. See
// dispatcher.ErrOutage.
var ErrOutage = dispatcher.ErrOutage

// Idle says how long a loop waits between polls of an empty queue. See scaling.Idle.
type Idle = scaling.Idle

// BackOff is how long a loop waits after each empty poll. See scaling.BackOff.
type BackOff = scaling.BackOff

// Load is the argument of Options.QueueWorkDetected. See scaling.Load.
type Load = scaling.Load

// PoisonPolicy decides when a message is poison and where it is moved. See poison.Policy.
type PoisonPolicy = poison.Policy

// PoisonReason is why a message is poison, in one word. Package poison defines the reasons.
type PoisonReason = poison.Reason

// Claims keeps the bodies that messages only refer to. See dispatcher.Claims.
type Claims = dispatcher.Claims

// ClaimsError reports that the body of a message stays stored. See dispatcher.ClaimsError.
type ClaimsError = dispatcher.ClaimsError

// Slots are slots that several listeners share. See dispatcher.Slots and package slots.
type Slots = dispatcher.Slots

// Duplicates remembers which jobs were handled, and holds those in progress. See
// dispatcher.Duplicates.
type Duplicates = dispatcher.Duplicates

// HeldJob is a job in progress that a message holds. See dispatcher.HeldJob.
type HeldJob = dispatcher.HeldJob

// Errors of [Duplicates]. See package dispatcher.
var (
	ErrHandled    = dispatcher.ErrHandled    // the job of a message was handled before
	ErrInProgress = dispatcher.ErrInProgress // another message with the same job is being handled
)

// DuplicatesError reports that Options.Duplicates failed. See dispatcher.DuplicatesError.
type DuplicatesError = dispatcher.DuplicatesError

// Visibility bounds how long a dequeued message is hidden. See dispatcher.Visibility.
type Visibility = dispatcher.Visibility

// FixedVisibility returns a visibility that does not depend on handling times. Less than 5 s is
// raised to 5 s.
func FixedVisibility(d time.Duration) Visibility { return dispatcher.Fixed(d) }

// Retry returns an error that gives the message back for another attempt after the delay, in place
// of Options.RetryDelay. The delay is bounded by the longest visibility timeout and the message's
// remaining life; negative means immediately. A message without attempts left is poison
// nevertheless.
func Retry(delay time.Duration, err error) error { return dispatcher.Retry(delay, err) }

// Snooze returns an error that gives the message back with the delay and records no attempt: the
// job did not fail, it is too early for it. For a message without an envelope the dequeue count,
// and so the attempt, rises nevertheless (see Options.Adopt). It shows that the handler works:
// middleware that has not called it returns Postpone. Without a delay it takes 1 s after the first 5
// deliveries of the message. See dispatcher.Snooze.
func Snooze(delay time.Duration) error { return dispatcher.Snooze(delay) }

// Postpone is Snooze for middleware and interceptors that have not called the handler: it says
// nothing about whether the handler works. Why is the reason for the wait. See dispatcher.Postpone.
func Postpone(delay time.Duration, why error) error { return dispatcher.Postpone(delay, why) }

// Poison returns an error that moves the message to the poison queue now, because no further
// attempt would help.
func Poison(err error) error { return dispatcher.Poison(err) }

// Discard returns an error that deletes the message unhandled, because it is no longer needed.
func Discard(err error) error { return dispatcher.Discard(err) }

// RetryCurve is the default of Options.RetryDelay: attempt⁴ seconds ± 10 %, at most an
// hour. See dispatcher.RetryCurve.
func RetryCurve(attempt int) time.Duration { return dispatcher.RetryCurve(attempt) }

// Delivery describes one delivery to code that does not know the type of its job. See
// dispatcher.Delivery.
type Delivery = dispatcher.Delivery

// DeliveryFrom returns the delivery that ctx belongs to. See dispatcher.DeliveryFrom.
func DeliveryFrom(ctx context.Context) (Delivery, bool) { return dispatcher.DeliveryFrom(ctx) }

// ResultOf returns the request in a handler's error, so that middleware can tell a snooze from a
// failure. See dispatcher.ResultOf for joined and nested errors.
func ResultOf(err error) Result { return dispatcher.ResultOf(err) }

// BatchHandler handles several messages in one call. See dispatcher.BatchHandler.
type BatchHandler[T any] = dispatcher.BatchHandler[T]

// Batch returns a handler that collects messages and calls h when it has size of them, or when
// the first has waited for the given time. See dispatcher.Batch.
func Batch[T any](h BatchHandler[T], size int, wait time.Duration) Handler[T] {
	return dispatcher.Batch(h, size, wait)
}

// EachItem returns a handler that handles several jobs of a group at the same time: producer.SendGroup
// sends several jobs in one message. See dispatcher.EachItem for the results of the items.
func EachItem[T any](h Handler[T], concurrency int) Handler[T] {
	return dispatcher.EachItem(h, concurrency)
}

// GroupError is the error of a group if not every item succeeded. See dispatcher.GroupError.
type GroupError = dispatcher.GroupError

// ItemError is the error of one item of a group. See dispatcher.ItemError.
type ItemError = dispatcher.ItemError

// All returns a handler that calls each of the handlers in turn and combines their results. See
// dispatcher.All.
func All[T any](hs ...Handler[T]) Handler[T] { return dispatcher.All(hs...) }

// Chain wraps a handler in middleware: the first is the outermost.
func Chain[T any](h Handler[T], ms ...Middleware[T]) Handler[T] { return dispatcher.Chain(h, ms...) }

// Message is one delivery of a job. See dispatcher.Message.
type Message[T any] = dispatcher.Message[T]

// Handler handles one message. See dispatcher.Handler.
type Handler[T any] = dispatcher.Handler[T]

// Middleware wraps a handler. See dispatcher.Middleware.
type Middleware[T any] = dispatcher.Middleware[T]

// Kind is one of several types of jobs on a queue. Package kinds makes them. See dispatcher.Kind.
type Kind = dispatcher.Kind

// KindOptions are the limits of one kind. See dispatcher.KindOptions.
type KindOptions = dispatcher.KindOptions

// Interceptor is middleware that does not depend on T. See dispatcher.Interceptor.
type Interceptor = dispatcher.Interceptor
