// Package azurequeue is [queue.Queue] on Azure Queue Storage, through the SDK
// package azqueue.
//
// # Delivery
//
// That of the service: at least once, in no promised order. See package queue.
//
// # Cost
//
// One method call is one HTTP request is one billed transaction. The retries
// of the SDK and those of net/http are off, so that a lost answer to a dequeue
// is an error here and not a second batch hidden for nothing. The one exception
// is the service asking for a newer token (401 with a challenge), which the SDK
// answers once. Arguments that the service would refuse are refused before a
// request is spent.
//
// A request takes at most [Options.TryTimeout]. When no answer came the error
// is [queue.ErrOutcomeUnknown]; when nothing can have been sent it is
// [queue.ErrUnavailable], or just the context's error.
//
// # Errors
//
// Every error is a [*queue.Error] with the HTTP status, the storage error code
// and the request id, on one line; [errors.As] still finds the SDK's
// *azcore.ResponseError in it. Keys, signatures and receipts are in none.
//
// An answer that reports success and is not what the service answers, such as
// the login page of a network for guests, an empty or a cut body, is
// [queue.ErrOutcomeUnknown] and says what came. It is never an empty queue.
// Redirects are not followed.
//
// # Concurrency and shutdown
//
// A [Queue] is safe for concurrent use. It and its siblings share one client
// with one pool of connections. It has no goroutine of its own; [Queue.Close]
// lets go of idle connections.
//
// # Time
//
// Time is read from package time alone, so that with an in-process
// [Options.Transport] a Queue runs in a testing/synctest bubble.
package azurequeue
