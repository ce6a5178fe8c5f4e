// Package millrace feeds Go worker services from queues. It holds only [Run] and
// [RunOrdered], which run listeners and servers until the program is told to stop; the work
// is done by the packages below it:
//
//   - listener takes typed jobs off a queue and runs a handler for each,
//   - producer puts them there,
//   - queue is the port that both stand on, queue/azurequeue is Azure Queue Storage
//     behind it, queue/localqueue the engine that is embedded instead,
//   - emulator serves that engine over the REST protocol of Azure Queue Storage,
//   - poison, scaling and codec are the parts that have an answer of their own.
//
// # Delivery
//
// At least once. A job that was accepted is handled to success, or is in the poison
// queue, or still in its queue, or has reached the end of the life that its producer
// gave it. There is no fourth way. Handlers must be idempotent.
//
// # Concurrency
//
// Run starts every runner on a goroutine of its own and waits for all of them.
//
// # Shutdown
//
// The first SIGINT or SIGTERM drains, the second halts, the third is the operating
// system's. Run and RunOrdered are the only owners of signals. They work in a
// testing/synctest bubble too, so that a whole program can be tested on a fake clock.
//
// # Cost
//
// Run itself sends nothing.
package millrace
