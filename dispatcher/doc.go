// Package dispatcher runs handlers for messages. It owns the slots that handlers run in, the
// leases they run under, the meaning of their results, and the settlement that follows. It
// knows nothing of loops or of when to poll; package listener does, and is what programs
// usually use.
//
// # Delivery
//
// Delivery is at least once. A message is deleted after its handler returned nil, never
// before. An error gives it back to the queue with a growing delay; past the bounds of
// poison.Policy it is copied to the poison queue and then deleted. A handler whose lease is
// lost is cancelled and its result settles nothing, because another worker may have the
// message. Handlers must be idempotent.
//
// # Concurrency
//
// At most Concurrency handlers run at once, each on a goroutine of its own, and no message is
// held that is not running. A slot is free again when its handler returns. Settlements run
// beside the next dequeue, at most Concurrency of them; beyond that slots wait. One lease
// manager renews all leases with a heap and a few goroutines, without a timer per message.
//
// # Hooks
//
// A panic in a handler is a failed attempt. A panic in any other function of [Options], or in
// a method of an error that a handler returns, is contained: the default of the function is
// used, the message is handled and settled, and a [*HookError] is passed to OnError. The same
// holds for runtime.Goexit, which t.FailNow calls. A codec that panics has failed to decode. A
// panic in a queue.Queue ends the process.
//
// # Shutdown
//
// [Dispatcher.Drain] gives back what was not started, lets handlers finish while their leases
// are still renewed, cancels their contexts when its own context ends, settles, and returns.
// The error names what still runs then.
//
// # Cost
//
// A success is one delete, a failure one update, a poisoned message an enqueue and a delete.
// A handler shorter than half its visibility is never renewed; the visibility adapts to the
// handling time.
package dispatcher
