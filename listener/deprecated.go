package listener

import "time"

// Each is the former name of [EachItem].
//
// Deprecated: Use [EachItem]. The next release removes Each.
//
//go:fix inline
func Each[T any](h Handler[T], concurrency int) Handler[T] { return EachItem(h, concurrency) }

// Postpone is the former name of [NotRun].
//
// Deprecated: Use [NotRun]. The next release removes Postpone.
//
//go:fix inline
func Postpone(delay time.Duration, why error) error { return NotRun(delay, why) }

// GivenBack is the former name of [Returned].
//
// Deprecated: Use [Returned]. The next release removes GivenBack.
//
//go:fix inline
const GivenBack = Returned

// LimitedSource is the former name of [FailingSource].
//
// Deprecated: Use [FailingSource]. The next release removes LimitedSource.
//
//go:fix inline
type LimitedSource = FailingSource
