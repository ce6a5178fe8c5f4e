// Package localqueue is the embedded engine: accounts, queues and messages in memory,
// with the semantics that Azure Queue Storage documents. Package filequeue keeps them in a
// directory, and package emulator serves the same engine over the REST protocol.
//
// This package is stable: see docs/stability.md.
//
// # Delivery
//
// Delivery is at least once. Messages are delivered in the order in which they become
// visible, then in the order in which they were enqueued. The service promises no order, so
// do not depend on this one. A message becomes visible at the exact instant; the times
// shown are truncated to whole seconds, as on the wire.
//
// A receipt is valid until the message is dequeued or updated again, even after the
// visibility timeout. Then it fails with [queue.ErrReceiptMismatch]; once the message is
// deleted or has expired, with [queue.ErrMessageGone].
//
// # Durability
//
// An engine made with [New] keeps nothing when the process ends. One over a directory, see package
// filequeue, returns from a call only after the disk has everything that the result reveals. A
// call that fails with [queue.ErrUnavailable] has changed nothing. A call whose context
// ends while it waits for the disk fails with [queue.ErrOutcomeUnknown].
//
// # Cost
//
// Enqueue, dequeue, update and delete take O(log n) in the number of messages of the queue;
// depth, clear and drop take O(1). The next call on a queue removes its expired messages,
// so there is no goroutine for that. The engine uses some 250 bytes for each message
// besides its text; over a directory, it keeps no committed text in memory. Concurrent calls
// share one commit, which waits up to a millisecond for the callers that shared the last
// one; a single caller never waits for others.
//
// # Concurrency and shutdown
//
// Everything is safe for concurrent use. Each queue has its own lock, so queues do not
// contend. In memory, no call blocks, a context is checked once before anything is done, the
// engine starts no goroutine but those of [Engine.Subscribe], and it need not be closed. Over a
// directory, calls release the lock before they wait for the commit; one goroutine commits, and
// [Engine.Close] waits for it.
//
// # Time
//
// An engine has its own clock. It starts at the wall clock and advances with the monotonic
// clock of the process, so setting the wall clock neither hides, reveals nor expires a
// message. Where the monotonic clock stops while a machine is suspended, leases and TTLs
// stop too, like the leases of the workers on that machine. Over a directory, the clock
// starts no earlier than the newest time in it. If the wall clock is behind that
// after a restart, visible messages stay visible, and hidden ones stay hidden for as long
// as remained. If the wall clock is far ahead at a restart, messages whose TTL has ended by
// it expire: the engine cannot distinguish that from a long pause.
//
// Times are shown by the current wall clock, so that clients can compare them with their
// own. After the wall clock was set by more than a second, the times shown for a message
// move with it.
//
// In a testing/synctest bubble, the engine uses the bubble's clock and must be made inside
// the bubble.
package localqueue
