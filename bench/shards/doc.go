// Shards measures what several queues carry that are limited: jobs are sent, handled and deleted as fast as the
// queues allow, over 1, 2, 4 and 8 of them, each limited to 2,000 messages a second.
//
//	go run ./shards -h
//
// The queues are those of the emulator in a process of its own, with [emulator.Limits]. It counts a put, a get
// and a delete of a message against the limit of its queue, so one queue carries at most a third of the limit
// from sending to deleting. The sender waits when too many jobs are under way, so that the backlog
// stays short and what is measured goes on.
//
// Processor time is that of both processes, user and system, as a part of all processors of the
// machine. Where that is near 1 it is what bounds the throughput, and not the queues.
package main
