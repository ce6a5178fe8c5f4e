// Package scaling decides two things for a listener: how long to wait when the queue is empty
// ([Idle]), and how many loops a load calls for ([Loops]).
//
// # Idle
//
// The wait after the k-th empty poll grows as (2^k − 1) × 100 ms ± 20 %, from Min up to Max.
// Any [BackOff] can replace that curve, among them the policies of
// github.com/cenkalti/backoff/v4.
//
// # Cost
//
// Once a loop waits Max between polls it costs one transaction per Max: at one second 86,400 a
// day, at one minute 1,440. The listener spreads the waits of its surviving loops over
// [Max, 1.1 Max), so that workers do not poll in step and one poll per Max is an upper bound.
//
// # Concurrency
//
// A [Loops] function and Idle.New are called concurrently. A BackOff that New returned is used
// by one loop only.
package scaling
