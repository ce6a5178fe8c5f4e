// Package localqueue is the embedded engine: accounts, queues and messages
// kept in memory, and over a [Store] on a disk too, with the semantics that
// Azure Queue Storage documents. A [Queue] is a [queue.Manager] in process, and
// package emulator serves the same engine over the service's REST protocol.
//
// # Delivery
//
// At least once. Messages are handed out in the order in which they become
// visible, then in the order in which they were enqueued; the service promises
// no order, so nothing may depend on this one. A message is hidden to the exact
// instant, while the times shown are cut to whole seconds as on the wire.
//
// A receipt is good until the message is dequeued or updated again, even after
// the visibility has ended. After that it is [queue.ErrReceiptMismatch]; once
// the message was deleted or has expired it is [queue.ErrMessageGone].
//
// # Durability
//
// Of an engine made with [New] nothing survives the process. One made with [Open]
// answers once the store has what the answer tells: a call that fails with
// [queue.ErrUnavailable] has changed nothing, and one whose context ends while it
// waits for the store fails with [queue.ErrOutcomeUnknown]. Package filequeue has
// a store in a directory.
//
// # Cost
//
// Enqueue, dequeue, update and delete take O(log n) of the messages in the
// queue, whatever its depth; depth, clear and drop take O(1). Expired messages
// are taken away by the next call on their queue, without a goroutine. The
// engine holds some 250 bytes for a message besides its text, which over a store
// it does not hold. Calls that are under way together share one commit, which
// waits up to a millisecond for those who shared the last; a caller alone waits
// for nobody.
//
// # Concurrency and shutdown
//
// Everything is safe for concurrent use. Each queue has its own lock, so queues
// do not contend. In memory no call blocks, a context is looked at once, before
// anything is done, and the engine starts no goroutine and needs no closing. Over a
// store, calls wait for it after they have given the lock back; one goroutine
// commits, which [Engine.Close] waits for.
//
// # Time
//
// An engine has a time of its own. It begins with the wall clock and goes forward with the
// monotonic clock of the process: a wall clock that is set, back or forth, hides no message,
// shows none that is hidden, and ends no life. Where the monotonic clock stands still while a
// machine is suspended, leases and lives do too, as the leases of the workers on that machine
// do. Over a [Store] it begins no earlier than the newest time in the store: if the clock is
// behind that after a restart, what was visible is visible, and what is hidden is so for as
// long as was left. A clock that is far ahead at a restart ends the lives that are over by it:
// that cannot be told from a long time.
//
// Times are shown by the wall clock as it is when they are shown, so that a client can compare
// them with its own. After the wall clock was set by more than a second, the same message is
// shown with other times than before.
//
// In a testing/synctest bubble an engine lives on the bubble's clock and must be made inside
// the bubble.
package localqueue
