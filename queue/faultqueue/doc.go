// Package faultqueue wraps a [queue.Queue] and injects the faults of a network and a
// service: requests are throttled, fail, get lost, are slow, are executed twice or after
// their caller has given up; responses are lost after the server has acted; the process
// dies; the server's clock is off; the queue is missing for a while. Without faults it
// passes every call through unchanged.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Replay
//
// The fault of a call is a pure function of the seed, the operation, the subject of the
// call (the message, the text sent, or nothing) and the number of earlier calls of that
// operation with that subject. It does not depend on time or on the order of goroutines.
// (The subject of a dequeue is the number of messages it asks for. A missing queue depends
// on the time, [Options].DieAfter on the number of calls.) Every faulty call takes a seeded
// time of its own, so that in a testing/synctest bubble the order of events is seeded too.
// Two runs with the same seed have the same trace, in the order of [Queue.Trace].
//
// # Delivery
//
// That of the inner queue. A fault never loses a message: a lost response to a dequeue
// leaves the batch hidden for its visibility timeout, and [Duplicate] and [Late] can add a
// message.
//
// # Concurrency and shutdown
//
// A [Queue] is safe for concurrent use; it shares faults, trace and death with its
// siblings. Each [Late] request in flight has a goroutine, for which [Queue.Wait] waits. No
// lock is held while the inner queue works or a call waits. A call whose context ends while
// it is in flight fails with [queue.ErrOutcomeUnknown] and may have taken effect.
//
// # Cost
//
// One call is one call of the inner queue, none if a fault prevents it, two for a
// [Duplicate].
package faultqueue
