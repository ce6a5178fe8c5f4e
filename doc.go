// Package millrace runs Go worker services that process jobs from queues. It holds only [Run],
// [RunOrdered] and their parts, which run listeners and servers until the program is told to
// stop. The work is done by the packages below it:
//
//   - listener takes typed jobs off a queue and runs a handler for each,
//   - producer sends them,
//   - queue is the interface that both use, queue/azurequeue is Azure Queue Storage behind it,
//     queue/localqueue the embedded engine,
//   - emulator serves that engine over the REST protocol of Azure Queue Storage,
//   - poison, scaling and codec hold the policies for poison messages, for polling and for
//     message formats.
//
// This package is stable: see docs/stability.md.
//
// # Delivery
//
// Delivery is at least once. A job that was accepted is handled to success, or is in the poison
// queue, or still in its queue, or has reached the TTL that its producer set. Handlers must be
// idempotent.
//
// The same holds for each job of a group, which is several jobs in one message. One whose completion
// was recorded, by a renewal or when the message was given back, is not handled again.
//
// # Concurrency
//
// Run starts every runner on a goroutine of its own and waits for all of them.
//
// # Shutdown
//
// The first SIGINT or SIGTERM drains, the second halts, the third has its usual effect. Run and
// RunOrdered are the only functions that handle signals. They also work in a testing/synctest
// bubble, so that a whole program can be tested on a fake clock.
//
// # Cost
//
// Run itself sends no request.
package millrace
