// Package queue is the port between Millrace and a queue service: what a queue can do,
// what a message is, the limits and the errors. It contains no implementation.
//
// Operations, limits and errors are those of Azure Queue Storage, under the service's
// names. Every implementation passes the conformance suite in package queuetest.
//
// This package is stable: see docs/stability.md.
//
// # Delivery
//
// At least once, in no promised order. A dequeue hides a message for its visibility
// timeout and returns a [Lease]. Unless the message is deleted before the timeout ends, it
// is delivered again with a higher dequeue count. A lease is a fencing token: an operation
// with an outdated receipt fails with [ErrReceiptMismatch] or [ErrMessageGone], both of
// which are [ErrLeaseLost].
//
// # Cost
//
// One method call is one request and one billed transaction: an implementation never
// retries, pages or polls by itself. Arguments that the service would refuse are refused
// without a request.
//
// The context of a request says why it is sent, see [WithCause], and how often it was sent before, see
// [WithRepeats]. Wrappers pass it on, so that package metered can tell what is paid for.
//
// # Concurrency
//
// A [Queue] is safe for concurrent use. Cancelling a context abandons the request in
// progress. Whether it took effect is then unknown: [ErrOutcomeUnknown].
//
// # Durations
//
// The service counts whole seconds. Durations are rounded up: a message is hidden for at
// least as long as was asked for.
package queue
