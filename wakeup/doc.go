// Package wakeup carries hints that work has come to a queue, so that a listener need not poll to
// find out. The hints may come from another process: packages serverwakeup and natswakeup are such
// sources. [Bus] is one within a process.
//
// # Delivery
//
// An event is a hint and never the truth. It may come twice, late, for a queue that is empty, or not at
// all. A listener that hears one dequeues; one that hears none dequeues now and then all the same.
//
// Set listener.Options.Wakeups to a source. Its listener then has no loops while its queue is empty, and
// sends nothing but a safety poll a minute. An event starts a loop. An empty queue and an event for
// nothing cost one dequeue; a flood of such events costs no more than a loop that polls.
//
// On a Bus every listener hears every event. So k listeners on one queue and one Bus send k dequeues
// for one message. Between processes an event reaches one of those that have room, and the next one
// is woken only while full batches come.
//
// # Concurrency
//
// Everything here is safe for concurrent use. Nothing waits for a subscriber.
package wakeup
