// Package channels keeps the channels of a microblog and what people write in them, their posts, in two tables.
//
// # Tables
//
// A channel is the entity of the partition that is its name, escaped, and of the row "". Its posts have the same
// partition in the other table. The row of a post is the time at which it was written, in UTC and in a fixed width, and a
// random suffix: so posts are in the order of time.
//
// # Consistency
//
// Nothing holds two tables together, so every channel has an [Incarnation]: a random text that no other channel has,
// not even one of the same name before or after. A post carries the incarnation that it was written to. It is shown only
// in that incarnation, and only while the channel is not marked.
//
// [Site.BeginDeletion] marks a channel. From then on [Site.Channel], [Site.List], [Site.Page] and [Site.Write] do as if
// it did not exist: they read the channel last, so that what they return was so at a time when the channel was not marked.
// [Site.Create] takes over a marked channel, with another incarnation. What deletes the old one looks for its
// incarnation and so never touches the new one.
//
// A post can still arrive in a channel that is gone: its writer read the channel before it was marked, and died
// before it could take the post back. Nobody ever sees that post. It arrives [WriteTimeout] after the mark at the
// latest, and is deleted by a second pass of the worker role after that time. [Site.Sweep] finds all such posts.
//
// # Concurrency
//
// A [Site] is safe for concurrent use, by any number of processes with the same tables. Every operation may end between any
// two of its steps, and may be done again.
//
// # Cost
//
// A post costs three requests to be written, and a page of posts three to be read. The list costs one for each channel
// where the pages of a table end with their partitions. A call whose store is unavailable is made four times at most, within
// about a second, beside what the store itself repeats.
package channels
