package dispatcher

import "time"

// Result is what the error of a handler asks for. The zero value asks for nothing.
type Result struct {
	// Outcome is [Deleted] for a nil error, [Retried] for one that says nothing else, and
	// what [Retry], [Snooze], [Poison] and [Discard] say otherwise.
	Outcome Outcome

	// Explicit tells an error of those four functions from any other.
	Explicit bool

	// Delay is what Retry or Snooze asked for. Zero for the others, and for an error that
	// leaves the delay to Options.RetryDelay.
	Delay time.Duration

	// Err is what was passed to Retry, Poison or Discard, or else the error itself. Nil
	// for success and for a snooze.
	Err error
}

// ResultOf reads what a handler's error asks for, so that middleware can tell a snooze
// from a failure. It is the rule by which messages are settled:
//
//   - An error of [Retry], [Snooze], [Poison] or [Discard] counts also when it is wrapped.
//     If one wraps another, the outer one counts.
//   - Of errors that are joined, by errors.Join or by several %w, the one that asks for
//     most counts: Poison, then a plain error or Retry, then Snooze, then Discard. A
//     failure that is joined with a snooze is a failure.
//
// Poison still depends on the attempts: a message whose last attempt failed is moved to
// the poison queue though its error asks for another. It is safe for concurrent use.
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

// findVerdict returns what err says by one of the four functions, or nil if it is a plain
// failure.
func findResult(err error) *handlerResult {
	for err != nil {
		switch e := err.(type) { //nolint:errorlint // this walks the tree itself
		case *handlerResult:
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

// weightiest returns what the joined errors say together.
func strongest(errs []error) *handlerResult {
	var worst *handlerResult
	rank := 0
	for _, err := range errs {
		if err == nil {
			continue
		}
		said := findResult(err)
		if r := said.precedence(); r > rank {
			worst, rank = said, r
		}
	}
	return worst
}

// weight orders results by how much they ask for. A nil verdict is a plain failure.
func (v *handlerResult) precedence() int {
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
