// Package wakeup carries hints that work has come to a queue, so that a listener need not poll to
// find out. The hints may come from another process: packages serverwakeup and natswakeup are such
// sources. [Bus] is one within a process.
//
// # Delivery
//
// An event is a hint and never the truth. It may come twice, late, for a queue that is empty, or not at
// all. A listener that hears one dequeues; one that hears none dequeues now and then all the same.
//
// # Concurrency
//
// Everything here is safe for concurrent use. Nothing waits for a subscriber.
package wakeup
