// Package producer sends typed jobs to a queue.
//
// This package is stable: see docs/stability.md.
//
// # Delivery
//
// [Producer.Send] returns when the service has accepted the job. Transient failures are
// retried. If a response was lost, a retry may create two messages for one job, which is one more
// reason for handlers to be idempotent: [Sent] says so, and both messages have the same job id. A
// Send that gives up says by [queue.ErrOutcomeUnknown] that the job may be there nevertheless.
// [Producer.SendAll] sends many jobs, several at a time, and reports on each;
// [Producer.SendAllSeq] does so for a sequence that need not fit into memory. [Producer.Cancel]
// takes back what no worker has taken.
//
// # Concurrency
//
// A [Producer] is safe for concurrent use. It has no goroutines beyond those of a SendAll, which
// end before it returns, so there is nothing to shut down. With Options.Wakeups a call of a publisher
// that hangs outlives its Send.
//
// # Cost
//
// One transaction per job, and one more for each retry. Wake-ups cost none, unless there is a
// WakeupDepth. Jobs that share a message share its transaction: [Producer.SendGroup] sends one such
// message, and SendAllOptions.PerMessage packs any number of jobs.
package producer
