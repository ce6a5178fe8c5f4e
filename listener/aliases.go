package listener

import (
	"context"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/load"
	"github.com/millrace/millrace/poison"
)

// The types and functions of packages dispatcher and poison that programs need, so
// that they import only this package and one queue.

// Outcome is how a delivery ended. The zero value is not a valid outcome.
type Outcome = dispatcher.Outcome

// The outcomes.
const (
	Deleted   = dispatcher.Deleted   // the handler succeeded and the message was deleted
	Retried   = dispatcher.Retried   // the handler failed and the message was given back with a delay
	Discarded = dispatcher.Discarded // deleted unhandled: the handler asked for it
	Poisoned  = dispatcher.Poisoned  // the message was copied to the poison queue and deleted
	Kept      = dispatcher.Kept      // the message is poison and stays hidden in its queue
	Snoozed   = dispatcher.Snoozed   // the message was given back with a delay, without recording an attempt
	Returned  = dispatcher.Returned  // the message was not fully handled and is visible again
	Lost      = dispatcher.Lost      // the lease was lost: another worker has the message or will
	Unsettled = dispatcher.Unsettled // the settlement failed: the message will be delivered again
	Duplicate = dispatcher.Duplicate // deleted unhandled: its job was handled before
)

// Result is the request in a handler's error. The zero value asks for nothing.
type Result = dispatcher.Result

// DeliveryError reports a delivery that did not succeed: the message, its error, and the outcome.
// It is passed to Options.OnError. Package log/slog logs it as a group.
type DeliveryError = dispatcher.DeliveryError

// PanicError is the error of a handler that panicked.
type PanicError = dispatcher.PanicError

// StuckError reports a handler that still runs long after its context has ended. It is passed
// to Options.OnError.
type StuckError = dispatcher.StuckError

// HookError reports a panic in a function of the Options. The dispatcher continues with the
// default of that function, and no message is lost. It is passed to Options.OnError immediately,
// and then at most every ten seconds per hook.
type HookError = dispatcher.HookError

// SetupError reports options that are valid one by one but cannot work together as intended, or
// settings in the metadata of a queue that are invalid. It is passed to Options.OnError once. No
// message is lost.
type SetupError = dispatcher.SetupError

// AbandonedError names the messages that were still being handled or settled when a drain had to
// end. They are delivered again when their leases end.
type AbandonedError = dispatcher.AbandonedError

// Causes of the end of a handler's context, as context.Cause returns them.
var (
	ErrLeaseLost    = dispatcher.ErrLeaseLost    // another worker has the message, or it is gone
	ErrLeaseExpired = dispatcher.ErrLeaseExpired // the lease could not be renewed in time
	ErrTimeout      = dispatcher.ErrTimeout      // the handler's time-out has passed
	ErrStopping     = dispatcher.ErrStopping     // the worker is stopping and its grace period is over
)

// FailingSource describes what messages have in common that keep failing. They get only some of the
// slots, so that others go on.
type FailingSource = dispatcher.FailingSource

// ErrOutage means that a message waits because what it belongs to keeps failing. See
// dispatcher.ErrOutage.
var ErrOutage = dispatcher.ErrOutage

// Load is what one instance knows of its load. A rule for loops gets it, a listener's state has it,
// and an instance reports it. It may be copied. Its JSON form has the names in lower case, with
// underscores. The fields:
//
//   - Depth: the approximate number of messages in the queue, including those being handled.
//   - Loops: the number of loops running.
//   - Running: the number of handlers running.
//   - Settling: the number of settlements in progress.
//   - Slots: how many handlers may run at once. With shared slots, how many there are for all.
//   - BatchSize: how many messages one loop takes at most in one dequeue.
//   - Arrival: how many messages a second come to the queue, as far as this instance can tell: the
//     growth between its readings of the depth, and the messages that it took off the queue
//     meanwhile. Messages that others took off are missing. It is the mean since the youngest reading
//     that is 30 s older than the newest, or since the oldest of the last 5 min. A reading that fails
//     changes nothing. It is unknown until the depth was read twice in 5 min, a second apart. It is
//     unknown while the newest reading is more than a minute old, such as when the queue is empty or
//     no more loops may start, and while others take off more than comes.
//   - Intake: how many messages a second this instance has received in the last 30 s, or since its
//     start. Unknown in its first second.
//   - Service: how many messages a second this instance has taken off the queue in the same time:
//     deleted, or moved to the poison queue. Unknown in its first second.
//   - Handling: how long a handler took, on average of those that returned in the same time, or of
//     the latest ones if none did. Unknown until one has returned.
type Load = load.Load

// Optional is a figure that may be unknown, because nobody reports it or because reading it failed. Get
// returns the figure and whether it is known, Or returns the figure or another one if it is unknown.
// The zero value is unknown. It may be copied. Its JSON form is that of the figure, or null if it is
// unknown, infinite or not a number; a time.Duration has the form that its String method returns, such
// as "1.5s".
type Optional[T any] = load.Optional[T]

// PoisonPolicy decides when a message is poison and where it is moved. The zero value is the default
// policy.
type PoisonPolicy = poison.Policy

// PoisonReason is why a message is poison, in one word for metrics and filters.
type PoisonReason = poison.Reason

// Claims keeps the bodies that messages only refer to, because they are too large for a message.
// Package claimcheck implements it. Implementations must be safe for concurrent use.
type Claims = dispatcher.Claims

// ClaimsError reports that Claims.Settled failed: no message needs the body, and it stays stored as
// an orphan. No job is lost. It is passed to Options.OnError. Package log/slog logs it as a group.
type ClaimsError = dispatcher.ClaimsError

// Slots are slots that several listeners share, or whose number follows what their handlers need.
// Package dispatcher/slots makes them. [Listener.Check] and [Listener.Run] refuse others, unless they
// implement dispatcher.Slots. They are safe for concurrent use.
type Slots interface {
	// Size returns how many slots there are for all, which is the default of Options.Concurrency,
	// or an error that says why these cannot be used.
	Size() (int, error)
}

// Duplicates remembers which jobs were handled, so that a further message with such a job is
// deleted and not handled again, and holds the jobs in progress, so that their twins wait. Package
// dedupe implements it, and documents its guarantees. Implementations must be safe for concurrent
// use and should end with their context.
type Duplicates = dispatcher.Duplicates

// HeldJob is a job in progress that a message holds. Record or Release is called once and ends that.
type HeldJob = dispatcher.HeldJob

// Errors of [Duplicates]. See package dispatcher.
var (
	ErrHandled    = dispatcher.ErrHandled    // the job of a message was handled before
	ErrInProgress = dispatcher.ErrInProgress // another message with the same job is being handled
)

// DuplicatesError reports that Options.Duplicates failed for a message, which is handled and
// settled as if the option were not set: a duplicate of it may be handled. It is passed to
// Options.OnError. Package log/slog logs it as a group.
type DuplicatesError = dispatcher.DuplicatesError

// Visibility bounds how long a dequeued message is hidden. The first batches ask for First.
// Once handling times are known, dequeues ask for twice their 95th percentile, within Min…Max,
// and for more while leases turn out to be too short or when thousands are held. Renewals ask
// for as long as the handler has already run, if that is longer. So the message of a worker
// that died is delivered again after at most as long as its handler had run, or the visibility
// it was fetched with. All values are rounded up to whole seconds. If Min equals Max the
// visibility is fixed.
type Visibility = dispatcher.Visibility

// FixedVisibility returns a visibility that does not depend on handling times. Less than 5 s is raised to
// 5 s, because a shorter lease could not be renewed.
func FixedVisibility(d time.Duration) Visibility { return dispatcher.FixedVisibility(d) }

// Retry returns an error that gives the message back for another attempt after the delay, in place
// of Options.RetryDelay. A delay below a second is a second, as the service counts; zero and less
// mean immediately. It is bounded by the longest visibility timeout and the message's remaining life.
// A message without attempts left is poison nevertheless.
func Retry(delay time.Duration, err error) error { return dispatcher.Retry(delay, err) }

// Snooze returns an error that gives the message back with the delay and records no attempt: the
// job did not fail, it is too early for it. For a message without an envelope the dequeue count,
// and so the attempt, rises nevertheless (see Options.Wire.AcceptForeign). It shows that the handler works:
// middleware that has not called it returns [NotRun].
//
// A delay below a second is a second. One of zero or less means immediately for the first 5 deliveries
// of the message, and 1 s from then on.
func Snooze(delay time.Duration) error { return dispatcher.Snooze(delay) }

// NotRun returns an error that gives the message back like [Snooze], and says that no handler ran. It
// is for middleware and interceptors when the job must wait for something else than its own time: a
// key that another job has, a limit. A snooze shows that the handler works, and ends an outage of
// the handlers; NotRun says nothing about it, and does not hide that earlier deliveries of the message
// were lost. Why is the reason for the wait; it is not reported unless the message becomes poison
// because its life ends. A delay of zero or less is treated as by Snooze.
func NotRun(delay time.Duration, why error) error { return dispatcher.NotRun(delay, why) }

// Poison returns an error that moves the message to the poison queue now, because no further
// attempt would help.
func Poison(err error) error { return dispatcher.Poison(err) }

// Discard returns an error that deletes the message unhandled, because it is no longer needed.
func Discard(err error) error { return dispatcher.Discard(err) }

// RetryCurve is the default of Options.RetryDelay: attempt⁴ seconds ± 10 %, at most an
// hour, so about 1 s, 16 s, 81 s, 4 min and 10 min after the first five failures. An
// attempt under 1 counts as 1. The spread is random, so that jobs that failed together do
// not come back together. A queue rounds up to whole seconds: the first wait is 1 s or 2 s.
// It is for a hook that treats only some errors otherwise:
//
//	RetryDelay: func(attempt int, err error) time.Duration {
//		if errors.Is(err, errBusy) {
//			return 0
//		}
//		return dispatcher.RetryCurve(attempt)
//	}
func RetryCurve(attempt int) time.Duration { return dispatcher.RetryCurve(attempt) }

// Delivery describes one delivery of a message. Handlers have it in their [Message], and code that
// does not know the type of its jobs has it alone: an [dispatcher.Observer], an [Interceptor], a
// log. It may be kept.
type Delivery = dispatcher.Delivery

// DeliveryFrom returns the delivery that ctx belongs to, for code that a handler calls without its
// message, such as a logger. It returns false outside of a handler, and for the context of a
// [BatchHandler], which has several deliveries.
func DeliveryFrom(ctx context.Context) (Delivery, bool) { return dispatcher.DeliveryFrom(ctx) }

// ResultOf returns the request in a handler's error, so that middleware can tell a snooze from a
// failure. Messages are settled by the same rule:
//
//   - An error of [Retry], [Snooze], [NotRun], [Poison] or [Discard] counts even if it is
//     wrapped. If one wraps another, the outer one counts.
//   - Of joined errors, by errors.Join or several %w, the strongest counts: Poison, then a plain
//     error or Retry, then Snooze or NotRun, then Discard. A failure joined with a snooze is a
//     failure. Of equally strong ones the first counts.
//
// The attempts still matter: after its last attempt a message is moved to the poison queue even if
// the error asks for a retry. ResultOf is safe for concurrent use.
func ResultOf(err error) Result { return dispatcher.ResultOf(err) }

// BatchHandler handles several messages in one call. It returns nil if all succeeded, otherwise
// one result per message in the same order, each with the meaning it has for a [Handler]. Any
// other number of results, including an empty slice that is not nil, is an error for every
// message. When all of them failed for one reason, such as a transaction that did not commit,
// return slices.Repeat([]error{err}, len(ms)).
//
// The context has the values of the first message's context. It ends when the contexts of all
// messages have ended, with the cause of the last.
type BatchHandler[T any] = dispatcher.BatchHandler[T]

// Batch returns a handler that collects messages and calls h when it has size of them, or when the
// first has waited for the given time. A batch does not wait for messages that cannot come or would
// come too late: it starts immediately when the worker stops, when a message joins it that is one of
// few because they keep failing, when the context of one of its messages ends, and when half of the
// first message's time-out has passed. A message is left out if its context ends before its batch
// starts.
//
// Inside of [EachItem] a batch also starts when all items of a group that run wait in it and no further
// one can start: for large batches give EachItem at least their size. Without EachItem the items of a
// group come one at a time, and a batch has one of each group.
//
// Every message of a batch keeps its own slot, lease and settlement. Concurrency must therefore be
// at least size for batches to fill (a [*SetupError] warns otherwise), and it bounds how many
// batches run at the same time. A panic in h is an error for its whole batch. A negative wait counts
// as zero. With a size under 1, or a nil handler, it returns nil, which is refused like any missing
// handler.
func Batch[T any](h BatchHandler[T], size int, wait time.Duration) Handler[T] {
	return dispatcher.Batch(h, size, wait)
}

// EachItem returns a handler that handles several jobs of a group at the same time: producer.SendGroup
// sends several jobs in one message. The concurrency applies to one group, and other slots have
// their own jobs. With less than 1, or a nil handler, it returns nil, which is refused like any
// missing handler. A handler that is not made by EachItem handles the jobs of a
// group one after the other. A job that is in no group is handled alike with EachItem and without.
//
// Every item of a group is a job of its own for the handler: it has its own message, with Item and
// Items set, context, time-out and result, and its failure harms no other. The message of the group
// has one slot, one lease and one settlement:
//
//   - It is deleted when every item has succeeded or was discarded.
//   - An item that failed, or asked for [Retry], makes it come again, for the remaining items only:
//     finished items are recorded in the message. The attempts are counted per message.
//   - An item that asked for [Snooze], or that was interrupted, makes it come again without an
//     attempt, unless another one failed.
//   - An item that asked for [Poison], cannot be decoded, or failed at the last attempt is not
//     handled any more. When all others are done the message is moved to the poison queue, once,
//     and a redrive handles these items only.
//
// The delay comes from the first item with the deciding result.
//
// Progress is recorded whenever the text must be sent anyway: by renewals, by Message.Save and when
// the message is given back. If a worker dies, the items since the last renewal are therefore
// repeated. From then on the start of each item is recorded too, by an update for each, and the
// next worker begins behind the items that were running: an item that kills its worker holds up no
// other. If another worker dies, the items run one at a time until the group is settled.
//
// EachItem belongs inside of [All] and outside of [Batch], which then collects items. It belongs outside
// of the middleware of package perkey, and fails inside of it. Code around it, such as interceptors
// and [Middleware], sees a group once, as its first remaining item; without EachItem it sees every item.
// If it returns another result than EachItem did, this result counts for all items that are not done,
// and an error in place of nil counts for all items that were handled. If it returns another
// *[GroupError] in place of that of EachItem, the request in each item's error counts for that item.
// Items that were not handled because the context ended are handled at a later delivery in any
// case.
func EachItem[T any](h Handler[T], concurrency int) Handler[T] {
	return dispatcher.EachItem(h, concurrency)
}

// GroupError is the error of a group of jobs if not every handler returned nil. It wraps the errors
// of the items.
type GroupError = dispatcher.GroupError

// All returns a handler that calls each of the handlers in turn with the same message and
// combines their results: poison if any asks for it, else the first error or retry, else a
// snooze, else a discard if every handler that did not succeed discards, else nil. A retry runs
// all of them again, so each must be idempotent. Without handlers, or with a nil one, it returns nil,
// which is refused like any missing handler.
func All[T any](hs ...Handler[T]) Handler[T] { return dispatcher.All(hs...) }

// Chain wraps a handler in middleware: the first is the outermost. If the handler or a middleware is
// nil, it returns nil, which is refused like any missing handler.
func Chain[T any](h Handler[T], ms ...Middleware[T]) Handler[T] { return dispatcher.Chain(h, ms...) }

// Message is one delivery of a job to a handler. The handler owns it until it returns.
type Message[T any] = dispatcher.Message[T]

// Handler handles one message. Returning nil deletes the message. An error gives it back with a
// delay that grows with the attempt. [Retry], [Snooze], [Poison] and [Discard] make errors that ask
// for something else, and [NotRun] one for middleware. A panic counts as an error, and so does a
// nil pointer stored in the error: return nil itself.
//
// The context ends when the lease is lost ([ErrLeaseLost], [ErrLeaseExpired]), when the
// time-out has passed ([ErrTimeout]), or when the worker is stopping and its grace period is
// over ([ErrStopping]); context.Cause returns which. It does not end when shutdown begins.
// [DeliveryFrom] returns the delivery of the context.
type Handler[T any] = dispatcher.Handler[T]

// Middleware wraps a handler, for logging, tracing, limits and the like.
type Middleware[T any] = dispatcher.Middleware[T]

// Kind is one of several types of jobs on a queue: its name, its handler and its limits. Make one
// with [dispatcher.Jobs.Kind], or with package kinds, which ties a name to a type for senders too. It is safe
// for concurrent use.
type Kind = dispatcher.Kind

// KindOptions are the limits of one [Kind]. Nil and the zero value mean those of the listener.
type KindOptions = dispatcher.KindOptions

// Interceptor is middleware that does not depend on the type of the jobs, so that one serves every
// listener of a program: for logging, tracing, limits and authentication. It calls next, which runs
// the handler, with ctx or a context derived from it, and returns next's error or another. It may
// skip next, and then returns [NotRun] if the job should come again, but must not call it twice.
// It must be safe for concurrent use. [ResultOf] returns the request in an error.
type Interceptor = dispatcher.Interceptor
