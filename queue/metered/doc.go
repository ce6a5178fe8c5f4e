// Package metered counts the requests that queues send, by operation, cause and outcome, and prices
// them. Storage bills requests, not messages: so this is the bill of a program, and says what it is
// spent on.
//
// A [Meter] wraps queues. Whoever uses the wrapped queue is counted, and so are its siblings, such as
// the poison queue. One meter may count several queues; several meters may count one. A listener has
// a meter of its own, whose counts are in its State.
//
// Operation and outcome are those of the request. The cause, see [Cause], is in its context:
// listener, dispatcher, producer and poison say it, so that an update which renews a lease can be
// told from one that gives a message back. A request that is sent again because it failed is counted
// again, and as repeated: it is billed again too.
//
// What a [queue.Queue] refuses without sending it is not counted. As queue/azurequeue sends exactly
// one request a call, the counts are those of the service.
//
// This package is experimental: any release may change it. See docs/stability.md.
package metered
