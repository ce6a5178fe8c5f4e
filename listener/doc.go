// Package listener takes typed jobs off a queue and runs a handler for each: a
// [Listener] owns the dequeue loops, how many there are, how long they wait, and
// the orderly end. Programs import this package and one queue, and package
// codec for bodies that are not JSON. Where the compiler cannot infer a type,
// docs/compiler-errors.md in the repository has its message beside the form that it takes.
//
// # Delivery
//
// At least once, as package dispatcher says: delete after success, a growing delay
// after a failure, the poison queue after too many, a cancelled context when the
// lease is lost. Handlers must be idempotent.
//
// # Concurrency
//
// Loops are goroutines that fetch; handlers run beside them. At most
// min(Concurrency, loops × BatchSize) handlers run at once, and a dequeue asks for
// no more than there are free slots, so no message waits in memory. The loops grow
// with the depth of the queue when work appears and while full batches keep coming,
// and shrink to Loops.Min when it stays empty; in between none is started twice for
// the same work and the last ones cannot leave together. When they shrink
// while handlers run on, the room that these use closes with them, and room for one more
// dequeue stays open. Work that comes while all that is open is taken by slow handlers is
// noticed within 30 s.
//
// # Hooks
//
// A function in [Options] that panics or calls runtime.Goexit, as t.FailNow does, stops
// neither a loop nor the listener: its default decides in its place, and a
// [*HookError] goes to OnError and the log.
//
// # Shutdown
//
// When the context of [Listener.Run] ends, no dequeue is sent any more; one that is
// on the wire is let return, because cancelling it could hide 32 messages; what was
// not started is given back at once; handlers finish, still renewed, until Grace is
// over, are then cancelled, and what they did not finish is given back. Run returns
// when nothing of the listener runs any more, or names what it abandoned.
// [Listener.Halt] ends the grace period at once.
//
// # Cost
//
// One transaction a dequeue and one a delete: 1 + 1/batch a message. An idle
// listener polls once per Idle.Max (times up to 1.1) and loop, of which Loops.Min
// remain. The depth is read when work appears and at most once per 256 messages
// after, or once in 30 s, while loops could be added.
package listener
