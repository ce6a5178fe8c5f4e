// Package listener takes typed jobs off a queue and runs a handler for each. A [Listener] owns
// the dequeue loops, their number, their waits, and the orderly shutdown. Programs import this
// package and one queue, and package codec for bodies that are not JSON. Where the compiler
// cannot infer a type, docs/compiler-errors.md in the repository shows each message beside the
// form that compiles.
//
// This package is stable: see docs/stability.md.
//
// # Delivery
//
// Delivery is at least once, as package dispatcher documents: delete after success, a growing
// delay after a failure, the poison queue after too many, a cancelled context when the lease is
// lost. Handlers must be idempotent.
//
// A queue may have jobs of several types: [NewKinds] takes a handler for each, and leaves jobs of
// other kinds to other workers. A listener made by [New] leaves all jobs of a kind alone.
//
// # Concurrency
//
// Loops are goroutines that dequeue; handlers run beside them. At most min(Concurrency, loops ×
// BatchSize) handlers run at the same time, and a dequeue requests no more than there are free
// slots, so no message waits in memory. The number of loops grows with the depth of the queue when
// work appears and while full batches keep coming, and shrinks to Loops.Min when the queue stays
// empty. Loops that decide at the same time neither start too many nor all end. When loops end
// while handlers run on, the slots that these use close with them, and room for one more dequeue
// stays open. If slow handlers take all open slots, new work is noticed within 30 s.
//
// # Wake-ups
//
// With Options.Wakeups an idle listener has no loop and sends nothing: an event, from a producer
// that publishes or from the server, starts a loop immediately. Events are hints. Lost ones are
// made up for by Options.Fetch.SafetyPoll, and while the source is not connected a loop polls as without
// it. See package wakeup for the sources. [Listener.Wake] says the same by any other way.
//
// # Settings in the queue
//
// A queue can have settings in its metadata, which apply to all its workers that have no option of
// their own for them: how many attempts make a message poison, and how long messages are hidden at
// first. Options.Metadata makes a listener follow them and their changes, and write the visibility
// that it has found: see [Metadata].
//
// # Hooks
//
// A function in [Options] that panics stops neither a loop nor the listener: its default is used
// instead, and a [*HookError] goes to OnError and the log. Package dispatcher documents which
// panics are not contained.
//
// # Shutdown
//
// When the context of [Listener.Run] ends, no further dequeue is sent. One in flight is not
// cancelled, because that could hide 32 messages. Messages that were not started are given back at
// once. Handlers finish, with their leases renewed, until Grace is over; they are then cancelled,
// and their messages given back. Run returns when nothing of the listener runs any more, or names
// the abandoned messages. [Listener.Halt] ends the grace period immediately.
//
// # Cost
//
// One transaction per dequeue and one per delete: 1 + 1/batch per message. An idle listener polls
// once per Idle.Max (plus up to 10 % jitter) and loop. Loops.Min loops remain; with Options.Wakeups
// it sends one safety poll a minute. The depth is read when work appears, and then at most once per
// 256 messages, or once in 30 s, while loops could be added. While there is work the metadata of
// the queue are read once a minute, for the flag that pauses workers and for Options.Metadata.
package listener
