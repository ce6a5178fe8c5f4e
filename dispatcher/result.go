package dispatcher

import (
	"time"

	"github.com/millrace/millrace/queue"
)

// Outcome is how a delivery ended. The zero value is not a valid outcome.
type Outcome string

// The outcomes.
const (
	Deleted   Outcome = "deleted"   // the handler succeeded and the message was deleted
	Retried   Outcome = "retried"   // the handler failed and the message was given back with a delay
	Discarded Outcome = "discarded" // deleted unhandled: the handler asked for it
	Poisoned  Outcome = "poisoned"  // the message was copied to the poison queue and deleted
	Kept      Outcome = "kept"      // the message is poison and stays hidden in its queue
	Snoozed   Outcome = "snoozed"   // the message was given back with a delay, without recording an attempt
	Returned  Outcome = "returned"  // the message was not fully handled and is visible again
	Lost      Outcome = "lost"      // the lease was lost or too short to start: another worker has the message or will
	Unsettled Outcome = "unsettled" // the settlement failed: the message will be delivered again
	Duplicate Outcome = "duplicate" // deleted unhandled: its job was handled before
)

var outcomes = [...]Outcome{Deleted, Retried, Discarded, Poisoned, Kept, Snoozed, Returned, Lost, Unsettled, Duplicate}

// Result is the request in a handler's error. The zero value asks for nothing.
type Result struct {
	// Outcome is [Deleted] for nil and [Retried] for a plain error. [Retry], [Snooze], [NotRun],
	// [Poison] and [Discard] ask for others. Snooze and NotRun both ask for [Snoozed].
	Outcome Outcome

	// Explicit reports whether one of these functions made the error.
	Explicit bool

	// Delay is the delay of Retry, Snooze or NotRun. It is zero otherwise, even if
	// Options.RetryDelay decides.
	Delay time.Duration

	// Err is the error passed to Retry, NotRun, Poison or Discard, or the error itself. Nil for
	// success and for Snooze.
	Err error
}

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
func ResultOf(err error) Result {
	if err == nil {
		return Result{Outcome: Deleted}
	}
	said := explicitResult(err)
	if said == nil {
		return Result{Outcome: Retried, Err: err}
	}
	return Result{Outcome: said.outcome, Explicit: true, Delay: said.delay, Err: said.err}
}

// explicitResult returns the result that err asks for explicitly, or nil if it is a plain failure.
func explicitResult(err error) *resultError {
	for err != nil {
		switch e := err.(type) { //nolint:errorlint // this walks the tree itself
		case *resultError:
			return e
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			return strongest(e.Unwrap())
		default:
			return nil
		}
	}
	return nil
}

// strongest returns the result of the joined errors together.
func strongest(errs []error) *resultError {
	var worst *resultError
	rank := 0
	for _, err := range errs {
		if err == nil {
			continue
		}
		said := explicitResult(err)
		if r := said.precedence(); r > rank {
			worst, rank = said, r
		}
	}
	return worst
}

// precedence orders results by how much they ask for. Nil is a plain failure.
func (v *resultError) precedence() int {
	switch {
	case v == nil, v.outcome == Retried:
		return 3
	case v.outcome == Poisoned:
		return 4
	case v.outcome == Snoozed:
		return 2
	}
	return 1 // Discarded
}

// resultError is the type of errors that ask for a result.
type resultError struct {
	err      error
	outcome  Outcome       // Retried, Snoozed, Discarded or Poisoned
	delay    time.Duration // for Retried and Snoozed
	uncalled bool          // the handler was not called; with Snoozed
}

func (v *resultError) Error() string {
	if v.err == nil {
		return string(v.outcome)
	}
	return v.err.Error()
}

func (v *resultError) Unwrap() error { return v.err }

// Retry returns an error that gives the message back for another attempt after the delay, in place
// of Options.RetryDelay. A delay below a second is a second, as the service counts; zero and less
// mean immediately. It is bounded by the longest visibility timeout and the message's remaining life.
// A message without attempts left is poison nevertheless.
func Retry(delay time.Duration, err error) error {
	return &resultError{err: err, outcome: Retried, delay: min(max(delay, 0), queue.MaxVisibility)}
}

// Snooze returns an error that gives the message back with the delay and records no attempt: the
// job did not fail, it is too early for it. For a message without an envelope the dequeue count,
// and so the attempt, rises nevertheless (see Options.Wire.AcceptForeign). It shows that the handler works:
// middleware that has not called it returns [NotRun].
//
// A delay below a second is a second. One of zero or less means immediately for the first 5 deliveries
// of the message, and 1 s from then on.
func Snooze(delay time.Duration) error {
	return &resultError{outcome: Snoozed, delay: min(max(delay, 0), queue.MaxVisibility)}
}

// NotRun returns an error that gives the message back like [Snooze], and says that no handler ran. It
// is for middleware and interceptors when the job must wait for something else than its own time: a
// key that another job has, a limit. A snooze shows that the handler works, and ends an outage of
// the handlers; NotRun says nothing about it, and does not hide that earlier deliveries of the message
// were lost. Why is the reason for the wait; it is not reported unless the message becomes poison
// because its life ends. A delay of zero or less is treated as by Snooze.
func NotRun(delay time.Duration, why error) error {
	return &resultError{err: why, outcome: Snoozed, delay: min(max(delay, 0), queue.MaxVisibility), uncalled: true}
}

// postponed reports whether no more is asked for than that the message comes again, for a handler
// that was not called. Nil is a plain failure, or success.
func (v *resultError) postponed() bool { return v != nil && v.uncalled }

// Poison returns an error that moves the message to the poison queue now, because no further
// attempt would help.
func Poison(err error) error { return &resultError{err: err, outcome: Poisoned} }

// Discard returns an error that deletes the message unhandled, because it is no longer needed.
func Discard(err error) error { return &resultError{err: err, outcome: Discarded} }
