// Package queue is the port between Millrace and a queue service: what a
// queue can do, what a message is, which bounds hold and how it fails. It
// contains no implementation and knows nothing of listeners.
//
// The verbs, bounds and error meanings are those of Azure Queue Storage, under
// the service's own names. Every implementation passes the conformance suite
// in package queuetest.
//
// # Delivery
//
// At least once, in no promised order. A dequeue hides a message for its
// visibility timeout and hands out a [Lease]; unless it is deleted before the
// timeout ends, the message is delivered again with a higher dequeue count. A
// lease is a fencing token: an operation with a receipt that is no longer the
// newest one fails with [ErrReceiptMismatch] or [ErrMessageGone], both of which
// are [ErrLeaseLost].
//
// # Cost
//
// One method call is one request is one billed transaction: an implementation
// never retries, pages or polls behind its caller's back. Arguments that the
// service would refuse are refused before a request is spent.
//
// # Concurrency
//
// A [Queue] is safe for concurrent use. Cancelling a context abandons the
// request on the wire; whether it took effect is then unknown, which is
// [ErrOutcomeUnknown].
//
// # Durations
//
// The service counts in whole seconds. Every duration is rounded up, never
// down: a message is hidden at least as long as was asked for.
package queue
