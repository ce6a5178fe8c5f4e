// Package azurequeue implements [queue.Queue] on Azure Queue Storage with the SDK
// package azqueue.
//
// This package is stable: see docs/stability.md.
//
// # Delivery
//
// That of the service: at least once, in no promised order. See package queue.
//
// # Cost
//
// One method call is one HTTP request and one billed transaction. The retries of the
// SDK and of net/http are off, so a lost response to a dequeue is an error here and does
// not hide a second batch. The one exception is a 401 with a challenge, by which the
// service asks for a newer token: the SDK sends that request again, once. Arguments that
// the service would refuse are refused without a request.
//
// A request takes at most [Options.TryTimeout]. One that this module repeats after a
// failure may take up to four times as long: the time before may have been too short.
// If no response arrives the error is [queue.ErrOutcomeUnknown]; if nothing can have
// been sent it is [queue.ErrUnavailable], or the context's error.
//
// # Errors
//
// Every error is a [*queue.Error] on one line, with the HTTP status, the storage error
// code and the request id. [errors.As] finds the SDK's *azcore.ResponseError in it. No
// error contains a key, a signature or a receipt.
//
// A success status with other content than the service's, such as a captive portal's login
// page or an empty or truncated body, is [queue.ErrOutcomeUnknown], never an empty queue.
// The error describes the content. Redirects are not followed.
//
// # Concurrency and shutdown
//
// A [Queue] is safe for concurrent use. It shares one client and one connection pool with
// its siblings, and has no goroutine of its own. [Queue.Close] closes idle connections.
//
// # Time
//
// Time is read from package time alone, so that with an in-process
// [Options.Transport] a Queue runs in a testing/synctest bubble.
package azurequeue
