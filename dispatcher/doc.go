// Package dispatcher takes messages to handlers: it owns the slots that handlers
// run in, the leases they run under, what their result means, and the settlement
// that follows. It knows nothing of loops or of when to poll; package listener
// does, and is what programs usually use.
//
// # Delivery
//
// At least once. A message is deleted after its handler returned nil, never
// before (B-12). An error gives it back to the queue with a growing delay; past
// the bounds of poison.Policy it is copied to the poison queue and then deleted.
// A handler whose lease is lost is cancelled and its result settles nothing: the
// message is somebody else's (B-13). Handlers must be idempotent (B-09).
//
// # Concurrency
//
// At most Concurrency handlers run at once, each on a goroutine of its own, and
// no message is held that is not running. A slot is free again when its handler
// returns; settlements go on beside the next dequeue, at most Concurrency of
// them, after which slots wait. One keeper renews all leases: a heap and a few
// workers, no timer a message.
//
// # Hooks
//
// A panic in a handler is a failed attempt. One in any other function of [Options], or in
// a method of an error that a handler returns, stops nothing either: the default of the
// function decides in its place, the message is handled and settled, and a [*HookError]
// goes to OnError. So does runtime.Goexit, which t.FailNow calls. A codec that panics has
// found what it cannot read. A panic in a queue.Queue is not survived.
//
// # Shutdown
//
// [Dispatcher.Drain] gives back what was not started, lets handlers finish while
// their leases are still renewed, cancels their contexts when its own context
// ends, settles, and returns; what still runs then is named in the error.
//
// # Cost
//
// A success is one delete, a failure one update, a poisoned message an enqueue
// and a delete. A handler shorter than half its visibility is never renewed;
// visibility follows the handling time (V-05).
package dispatcher
