// Package localqueue is the embedded engine: accounts, queues and messages
// kept in memory, with the semantics Azure Queue Storage documents. A [Queue]
// is a [queue.Manager] in process, and package emulator serves the same engine
// over the service's REST protocol.
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
// Nothing survives the process.
//
// # Cost
//
// Enqueue, dequeue, update and delete take O(log n) of the messages in the
// queue, whatever its depth; depth, clear and drop take O(1). Expired messages
// are taken away by the next call on their queue, without a goroutine. The
// engine holds some 250 bytes for a message besides its text.
//
// # Concurrency and shutdown
//
// Everything is safe for concurrent use. Each queue has its own lock, so queues
// do not contend, and no call blocks: a context is looked at once, before
// anything is done. The engine starts no goroutine and needs no closing.
//
// # Time
//
// The engine reads the wall clock, as the service does: it is what survives a
// suspended laptop and what a client compares with. In a testing/synctest
// bubble it lives on the bubble's clock and must be made inside the bubble.
package localqueue
