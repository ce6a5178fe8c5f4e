// Package scaling answers two questions for a listener and knows nothing else:
// how long to wait when the queue is empty ([Idle]), and how many loops a load
// deserves ([Loops]).
//
// # Idle
//
// The wait after the k-th empty poll grows as (2^k − 1) × 100 ms ± 20 %, from
// Min up to Max (L-21, L-22). The curve is a backoff.BackOff, so that any policy
// of github.com/cenkalti/backoff/v4 stands in for it.
//
// # Cost
//
// Once a loop waits Max between polls it costs one transaction per Max: at one
// second 86,400 a day, at one minute 1,440 (C-05, C-11). The listener spreads the
// waits of its surviving loop over [Max, 1.1 Max), so that fleets do not march in
// step and one poll per Max is a true bound.
//
// # Concurrency
//
// A [Loops] function and Idle.New are called from many goroutines. A BackOff that
// New returned is used by one loop alone.
package scaling
