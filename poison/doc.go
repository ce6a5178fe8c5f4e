// Package poison decides when a message is poison, where it is moved and what is recorded with
// it, and brings it back.
//
// This package is stable: see docs/stability.md.
//
// # Delivery
//
// A poison message is first copied to the poison queue and only then deleted: a failure in
// between leaves two copies, never none. The copy never expires. It is a [Record]: the reason,
// the last error, the counts and times, and the original text. If that does not fit into a
// message, the stack is left out, then the error is shortened, then left out, and finally only
// the bare text is sent, so that no message is too large to be moved.
//
// [Redrive] does the same in the other direction: it sends a message to the queue that it came
// from, and then deletes it from the poison queue. [List] shows what is there, and [Purge]
// deletes what nobody needs. All three take the queue of the jobs, find its poison queue by
// [Suffix] or in [Options], and choose by a [Filter].
//
// # Cost
//
// A move costs two transactions, an enqueue and a delete. The first move into a queue that does
// not exist costs two more. A redriven message costs two, and a share of 1/32 in a dequeue; one
// that is looked at and not chosen costs one, and 1/32.
package poison
