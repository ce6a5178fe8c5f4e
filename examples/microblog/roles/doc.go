// Package roles has the worker role of the microblog, which deletes channels with their posts, and how the web role asks
// for it.
//
// # The deletion
//
// A [Requester] puts a [Deletion] on the queue. The worker marks the channel, so that nobody reads it from then on. It
// deletes the posts page by page, and keeps the place of the next page in the message. After the last page it begins
// again, until a pass over all pages finds nothing. Then it sends a second deletion with a delay, deletes the channel,
// and the listener deletes the message. The second deletion does the same once more: it finds posts whose writers had
// begun before the channel was marked.
//
// # Delivery
//
// Every step may come twice, in any number of workers at once, and each worker may die between any two steps: what is
// deleted already counts as deleted. A message that comes again goes on with the page whose place it has. All steps name
// the incarnation of the channel, so a channel that is made anew under the same name loses nothing. A message waits while
// a store is unavailable, for as long as that takes. A deletion that fails otherwise is tried again for half a
// day, and is then moved to the poison queue; nobody sees the channel meanwhile, and a redrive goes on with it.
//
// # Concurrency
//
// A [Requester] is safe for concurrent use. The worker handles up to eight channels at once, each on one goroutine.
//
// # Shutdown
//
// The stop cuts a deletion short after two seconds. Another worker goes on with it at once.
//
// # Cost
//
// A page of 1,000 posts costs a query, ten groups of deletions and an update of the message.
package roles
