// Package producer sends typed jobs to a queue.
//
// # Delivery
//
// [Producer.Send] returns when the service has accepted the job. Transient failures are
// retried. If a response was lost, a retry may create two messages for one job, which is one more
// reason for handlers to be idempotent.
//
// # Concurrency
//
// A [Producer] is safe for concurrent use. It has no goroutines, so there is nothing to shut
// down.
//
// # Cost
//
// One transaction per job, and one more for each retry.
package producer
