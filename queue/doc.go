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
// The receipt of an enqueue, a dequeue or an update is the newest one until the message is dequeued
// or updated again, even if the visibility timeout has ended. With it one of any number of
// concurrent calls succeeds. An older receipt, or that of another message, fails with
// ErrReceiptMismatch while the message exists. Afterwards, and for an unknown id, an operation fails
// with ErrMessageGone. A refused operation changes nothing, and the lease stays what it was.
//
// A message expires at the time in Expires, even while it is leased, and nothing moves that time.
// Then no operation finds it. A cleared message is gone too, and so is one of a queue that was
// dropped, even if the queue was created again.
//
// # Texts
//
// A text of valid UTF-8, at most [MaxText] bytes, whose characters XML allows comes back unchanged,
// byte for byte, even an empty one. A queue that is reached by HTTP also refuses a text whose request
// exceeds 131,584 bytes with its characters escaped for XML, with [ErrTooLarge].
//
// # Errors
//
// Every error is an [*Error] on one line, with its kind, the queue, the
// message if the call names one, and the operation: "enqueue", "dequeue", "peek", "update",
// "delete", "properties", "create", "set metadata", "clear", "drop" or, of an account, "list" and
// "open". Beside an error the other results are zero. If the queue does not exist, every operation
// except a create fails with [ErrQueueMissing].
//
// Arguments are checked first: an implementation refuses what the service would refuse. Package driver
// has the checks, for authors of queues.
//
// # Cost
//
// One method call is one request and one billed transaction: an implementation never
// retries, pages or polls by itself. Invalid arguments send no request.
//
// The context of a request says why it is sent, and how often it was sent before, so that package
// metered can tell what is paid for. Wrappers pass it on.
//
// # Contexts
//
// A call with a context that has ended checks its arguments, sends nothing, and changes nothing. If
// the context ends during a call, the call ends early, and a change has taken effect completely or
// not at all. Both errors match the context's error, which is [context.Canceled] or
// [context.DeadlineExceeded], and its cause, see [context.Cause].
//
// The error is [ErrOutcomeUnknown] too if the request may have taken effect. It never is if the
// context had ended before the call.
//
// # Concurrency
//
// A [Queue] is safe for concurrent use.
//
// # Durations
//
// The service counts whole seconds. Durations are rounded up: a message is hidden for at
// least as long as was asked for. A delay must be shorter than the TTL after rounding too.
package queue
