// Package poison says when a message is poison, where it goes and what is
// recorded with it.
//
// # Delivery
//
// A message past its bounds is first copied to the poison queue and only then
// deleted: a failure in between leaves two copies, never none. The copy
// never expires (P-05). It is a [Record]: the reason, the last error, the counts
// and times, and the original text. When that does not fit into a message the
// error is shortened, then left out, and at last the bare text is sent, so that
// nothing is ever too large to be moved.
//
// # Cost
//
// A move is two transactions, an enqueue and the delete; the first one into a
// queue that does not exist yet is two more.
package poison
