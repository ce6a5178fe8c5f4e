// Latency measures how long a job waits: from the return of Send to the first line of its handler, with
// polling at the defaults and with wake-ups.
//
//	go run ./latency -h
//
// The queue is the emulator in a process of its own. The jobs are sent at random instants of a schedule that
// is made beforehand, the same for every contender, each on a goroutine of its own: a job that is slow delays
// no later one, so that waiting is not hidden by sending less (coordinated omission).
//
// Before each measurement the worker's process measures the round trip of a dequeue of one message, on a
// queue without other requests, at the pace of the jobs: processors that rested in between take longer. That is
// the least that any job takes, and the table says what is beyond it, percentile by percentile.
//
// Sender and worker may be two processes. Both read the monotonic clock of the system, which is one for all
// processes; elsewhere than on Linux, it is the wall clock, which somebody may set meanwhile.
package main
