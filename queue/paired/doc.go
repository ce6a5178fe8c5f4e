// Package paired keeps sends working while a queue cannot be reached.
//
// A [Queue] pairs a primary queue with backlog queues in a secondary account, best in another region. It sends to the
// primary queue. When that fails for the failover interval, sends go to a backlog queue chosen at random, until
// the primary queue accepts again. A [Syphon] beside the receivers brings what was diverted home to the primary queue, from
// which alone messages are received. Call [Queue.Pair] before the first send: it creates the backlog queues.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Failing over and returning
//
// A failure counts if the service failed ([queue.ErrUnavailable]) or did not answer
// ([queue.ErrOutcomeUnknown]). Everything else, such as [queue.ErrUnauthorized], is an error as without
// pairing: to divert would hide a mistake. The interval begins with the oldest request that fails, ends with a success, and
// fails over with the first failure at its end or later. Each queue fails over alone, in each process. A message
// that has failed for the interval, or whose deadline is near, is diverted even before.
//
// A busy service never fails over. A message that it refused is sent again after 10 to 15 s. One other message
// at a time finds out whether the service accepts again, after 100 ms and then more, and the others follow at the
// rate that it accepts. In a sharded queue the refusal is returned immediately, so that the message goes to
// another shard, unless its key decides the shard.
//
// While the queue is failed over, one send at a time is a probe: it goes to the primary queue first, which costs it at most
// 10 s and half of its time. If nobody sends, the properties of the queue are read. The first success is the return. Nothing is
// put into the primary queue to probe it.
//
// # Delivery
//
// At least once, as that of the queues. A message that was accepted is in the primary queue or in a backlog queue.
// If a queue gave no answer, it may have the message as well as the one that it was sent to next; the
// message says so in MaybeTwice. [State].Unanswered bounds the number of these duplicates.
//
// The syphon copies a message and then deletes it. A kill between the two leaves it twice, which can be as many messages
// as it copies at a time; [SyphonState].Doubtful bounds its other duplicates. What is no message of the pair is left in its
// backlog queue.
//
// # Order
//
// None is promised. Diverted messages come home after the outage, behind those that the primary queue
// accepted meanwhile.
//
// # Concurrency
//
// A [Queue] is safe for concurrent use. It holds no lock during a request. A [Syphon] has a goroutine for each backlog
// queue and one for each message that it copies; several may run, in one process or in many.
//
// # Shutdown
//
// In an outage a goroutine watches the primary queue. It ends with the outage, or with [Queue.Close], which waits for it.
// [Syphon.Run] finishes what it copies, gives back the rest, and returns when all its goroutines have ended.
//
// # Cost
//
// A request more for each backlog queue at Pair, two if it creates or marks the queue. In an outage a send is one request, and
// two if it is a probe or the queue failed first. A diverted message costs four transactions until it is in the primary queue:
// two puts, its share of a dequeue, and a delete. A syphon with nothing to do polls each backlog queue every 15
// minutes: 960 dequeues a day for ten, for each instance. [SyphonState].Requests counts what it sends. [State].SecondaryRequests counts what this process sent to the secondary
// account.
package paired
