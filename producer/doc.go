// Package producer puts typed jobs on a queue.
//
// # Delivery
//
// [Producer.Send] returns when the service has accepted the job. Failures that pass
// are repeated; when an answer was lost, repeating may make two messages of one job
// which is one more reason for handlers to be idempotent.
//
// # Concurrency
//
// A [Producer] is safe for concurrent use and has no goroutines, so there is nothing
// to shut down.
//
// # Cost
//
// One transaction a job, and one more for each repetition.
package producer
