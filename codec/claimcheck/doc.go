// Package claimcheck keeps bodies that are too large for a message in a blob store; the message
// carries a reference, the claim. [Claims] is an option of producers and of listeners, which
// must use the same store and container. Handlers get the body as if it had been in the message.
//
// This package is stable: see docs/stability.md.
//
// # Order
//
// A body is stored before its message is sent. When the message has been deleted with certainty
// because its job succeeded or was discarded, the body is replaced by a tombstone, an empty blob.
// The bodies of all other messages stay: of those in their queue, whatever happened to a worker,
// and of those in a poison queue.
//
// A tombstone says that the job is done. A duplicate, such as a message that was sent twice, or
// redriven twice, is deleted when it finds one, and counted: see [Claims.Duplicates].
// [Claims.Sweep] removes tombstones that are older than Options.Retention. A duplicate that comes
// later than that finds nothing and is poison.
//
// # Orphans
//
// A body stays without a message when a process is killed between two steps, when a Send fails
// after it has stored the body, when a message expires, is cancelled or is cleared, and when
// Message.Save has replaced it in a delivery that did not end the job: a duplicate may need it. The store
// cannot tell such a body from one whose message waits. [Claims.Waiting] lists all, with the
// times at which they were stored, and [Claims.Purge] removes those of an age that only the user
// can know: longer than any message lives, in its queue and in the poison queue.
//
// # Containers
//
// Only bodies in the container of the [Claims] are opened and settled, so that whoever can send
// messages cannot make a worker read something else. Give the container to nothing else. An id is
// part of each name, so that several queues may share a container.
//
// # Concurrency
//
// [Claims] is safe for concurrent use, by several processes too, and starts no goroutine. A
// listener holds up to Concurrency bodies of MaxBody bytes.
//
// # Cost
//
// A body costs three requests to the store: it is put, read, and replaced by the tombstone. A
// sweep lists the container and deletes each tombstone with one request, a purge each body with
// two.
package claimcheck
