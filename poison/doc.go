// Package poison decides when a message is poison, where it is moved and what is recorded with
// it.
//
// # Delivery
//
// A poison message is first copied to the poison queue and only then deleted: a failure in
// between leaves two copies, never none. The copy never expires. It is a [Record]:
// the reason, the last error, the counts and times, and the original text. If that does not fit
// into a message the error is shortened, then left out, and finally only the bare text is sent,
// so that no message is too large to be moved.
//
// # Cost
//
// A move costs two transactions, an enqueue and a delete. The first move into a queue that does
// not exist costs two more.
package poison
