// Package dispatcher runs handlers for messages. It owns the slots that handlers run in, the leases
// they run under, the meaning of their results, and the settlement that follows. It knows nothing
// of loops or of when to poll; package listener does, and programs usually use that.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Delivery
//
// Delivery is at least once. A message is deleted after its handler returned nil, never before. An
// error gives it back to the queue with a growing delay; past the bounds of poison.Policy it is
// copied to the poison queue and then deleted. A handler that loses its lease is cancelled and its
// result settles nothing, because another worker may have the message. Handlers must be idempotent.
//
// # The path of a message
//
// Package listener passes a dequeued batch to Dispatch. From there on each step ends with the call
// of the next one, and the source reads in this order:
//
//  1. dispatcher.go: Dispatch makes the deliveries of a batch and starts them.
//  2. delivery.go: assign passes each to the goroutine of a worker.
//  3. open.go: open reads the text.
//  4. admit.go: admit asks the stages whether the handler may run.
//  5. run.go: run calls the handler under a context and a lease.
//  6. decision.go: decide turns the result into a decision, with one switch.
//  7. settle.go: settle sends the requests of the decision.
//
// If the handler must not run, the message goes from 3 or 4 straight to 7. The list of the stages
// is in admit.go; kinds.go, duplicates.go, failures.go, starts.go, claims.go and group.go have one
// each. The errors that handlers return are in result.go, and the way to the poison queue in
// poison.go.
//
// # Failures
//
// What messages have in common that keep failing is a [FailingSource]: it gets a tenth of the slots,
// so that others go on. While nearly everything fails, a few messages are tried at a time, and their
// attempts do not count. See failures.go, and docs/outages.md for users.
//
// # Concurrency
//
// At most Concurrency handlers run at once, each on a goroutine of its own, and no message is
// held that is not running. A slot is free again when its handler returns. Settlements run
// beside the next dequeue, at most Concurrency of them; beyond that slots wait. One lease
// manager renews all leases with a heap and a few goroutines, without a timer per message.
//
// # Panics
//
// A panic in a handler, in middleware or in an interceptor is a failed attempt, of one item if the
// message has a group. So are runtime.Goexit there, which t.FailNow calls, and an error that panics
// when its text is read, such as a nil pointer in a non-nil error. A codec that panics while it
// decodes is a failed attempt too, and its message is tried again; an error of a codec makes the
// message poison. A panic in any other function of [Options], including [Claims] and
// [Duplicates], is contained: the default of the function is used, the message is handled and
// settled, and a [*HookError] is passed to OnError.
//
// A panic anywhere else ends the process: in a queue.Queue, in a goroutine that a handler started,
// or in a method of an error that is called later. Its messages come again, and a message that ends
// the process again and again becomes poison: see poison.Policy.MaxLost. runtime.Goexit in a codec
// or a hook is not contained. It ends a goroutine of the dispatcher: its message is not settled,
// and its slot stays taken.
//
// # Shutdown
//
// [Dispatcher.Drain] gives back messages that were not started, lets handlers finish while their
// leases are still renewed, cancels their contexts when its own context ends, settles, and returns.
// The error names the messages that are still being handled then.
//
// # Cost
//
// A success is one delete, a failure one update, a poisoned message an enqueue and a delete.
// A handler shorter than half its visibility is never renewed; the visibility adapts to the
// handling time.
package dispatcher
