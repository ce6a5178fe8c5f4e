// Package faultqueue is a [queue.Queue] around a [queue.Queue] that misbehaves
// as a network and a service do: requests are throttled, fail, get lost, are
// slow, are done twice, are done when nobody waits for them any more; answers are
// lost after the server has acted; the process dies in the middle; the server's
// clock differs from ours; the queue is away for a while. Without faults it passes
// everything through unchanged.
//
// # Replay
//
// What happens to a call is a pure function of the seed, the operation, what the
// call is about (the message, the text sent, or nothing) and how often the
// operation was called about it before; not of when it is called nor of which
// goroutine gets there first. (Of a dequeue no more is known beforehand than how
// many messages it asks for: it is the how-manieth of its kind that counts. A
// missing queue depends on the time, [Options].DieAfter on the number of calls.)
// Every faulty call takes its own, seeded time, so that in a testing/synctest
// bubble the order of events is seeded too. The trace of a run, in the order that
// [Queue.Trace] gives it, equals that of another run with the same seed.
//
// # Delivery
//
// That of the queue inside. A fault never loses a message: a lost answer to a
// dequeue leaves the batch hidden for its visibility timeout, and [Duplicate] and
// [Late] can add one.
//
// # Concurrency and shutdown
//
// A [Queue] is safe for concurrent use; it and its siblings share faults, trace
// and death. It has one goroutine for each [Late] request that is on its way, for
// which [Queue.Wait] waits, and holds no lock while the queue inside works or a call
// takes its time. A call whose context ends while it is under way fails with
// [queue.ErrOutcomeUnknown], and may have taken effect.
//
// # Cost
//
// One call is one call of the queue inside, none when a fault keeps it from
// acting, two for a [Duplicate].
package faultqueue
