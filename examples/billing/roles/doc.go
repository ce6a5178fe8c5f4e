// Package roles has the three roles of the billing system: the Initiator splits a batch into work items, Workers charge their
// records, and the Controller adds up what they found and records it in the books. A [System] plays some of the roles in
// one process; the processes together play all of them.
//
//	shipping → billing-batches → Initiator → billing-work → Workers → billing-results → Controller → books
//
// Messages go through three queues of an account. What is too large for them lies in a blob store, which all processes
// share: the pieces of a batch, its plan and its tariffs, and what the Workers found, the parts.
//
// # Delivery semantics
//
// Every record of a batch is billed exactly once, whatever is repeated. How a batch is split is fixed before its first item is
// sent, so that items have the same numbers and records whoever splits it. A part is stored once for each item. A batch
// is recorded under its name in one transaction when all parts are there, and never again. Each role does its work before it
// deletes its message. So processes may be killed, messages may come twice, and batches may be sent again.
//
// A batch of which a message is poison waits. The log says which message, and millrace poison redrive sends it
// back; the batch is then reported like any other.
//
// # Cost
//
// An item of 1,000 records costs a send, a delete and a share of a dequeue on the work queue. Workers answer for up to 16
// items with one message. In the store an item costs a put, a read and a delete of its part, and shares of the calls for
// pieces and messages.
package roles
