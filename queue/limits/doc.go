// Package limits bounds how many messages and requests one process sends a second, so that it stays
// below what the service or another user of it allows. [NewProcess] makes a [Process], and [Process.Wrap] the queues
// that are held to it. Several queues may share one limit, as the queues of an account do; a queue may
// have several, one wrapped in another.
//
// # What is held back
//
//   - A dequeue never waits. If the limit does not allow it now, it sends nothing and fails with a
//     [*queue.LimitedError] that says when to come again, and its share is kept for the queue for a moment.
//     A listener then waits without holding slots. Dequeues are made as full as the limit allows.
//   - An enqueue waits for its turn. If its context would end before that, it fails at once with a
//     [*queue.LimitedError], or with the error of the context if that ends meanwhile; nothing was sent.
//   - Everything else is sent at once, because it holds a lease or is rare: renewals, give-backs, deletes,
//     peeks, properties. It counts, so that dequeues and enqueues pay for it.
//
// # What counts
//
// A request is one call that reaches the service. Messages are those that are put, got, peeked at and deleted,
// as in the service's targets of 2,000 messages a second for a queue and 20,000 for an account. In any
// time t no more is sent than t times the rate, what [ProcessOptions].Burst saves up, and what must not wait:
// at most the renewals and settlements of the messages that are leased. In the long run those are paid for too.
//
// # Delivery, order, concurrency, shutdown
//
// Delivery and order are those of the inner queue. Everything is safe for concurrent use. There is
// nothing to stop: a limit has no goroutines.
//
// # Cost
//
// No requests, and a lock that is held for less than a microsecond per call.
package limits
