// Package slots lets several listeners, of any types of jobs, share one set of slots, so that together
// they run no more handlers at once than the process can bear. Give each a [Member] in the option Slots
// of its listener. A member keeps its loops, idle curve, leases and poison policy; the pool decides only
// who gets the slots that are free.
//
// # Weights
//
// No slot stays free for long that a member waits for, so one that is alone uses all. While several want
// more than there is, a free slot goes to the one that holds the fewest in proportion to its
// [MemberOptions.Weight], and to one that holds none first: no member starves. The slots that members
// hold over time follow the weights within a few percent, however long their handlers take.
//
// # Ranks
//
// A rank is a weight that outweighs all weights of later ranks: free slots go to the lowest
// [MemberOptions.Rank] that waits. Its floor is the reserve. A rank with a backlog leaves nothing to the
// ranks after it but their reserves, and slots that it cannot use: free slots are kept for a member whose
// last dequeue brought as many messages as it asked for. Slots that are kept run nothing, so a pool with
// ranks does less work in all.
//
// # More members than slots
//
// Members then take turns. A free slot goes to the one that is furthest behind its share of the handler
// time, so that each has its share, however long its handlers take.
//
// # Reserves
//
// Handlers are not preempted: what is taken comes back when a handler returns, whoever waits for it. A
// member that must not wait for the handlers of others reserves slots ([MemberOptions.Reserve]). Others
// never take these, also while they are unused. A reserve is part of the member's share, and holds from
// [Pool.Member] on until the listener of the member has ended.
//
// # What it costs
//
// A listener holds slots during a dequeue for the messages that may come, while it reads the metadata of
// its queue, once a minute if an option asks for that, and up to 100 ms when it tells a source of wake-ups
// that it has room again. So that members with empty queues do not take the slots of others for nothing,
// one that found nothing asks for an eighth of its share, or for its reserve if that is more, and then for
// four times as many messages as the last dequeue brought. Work that appears on an idle queue thus takes
// up to three dequeues more.
//
// A member that waits alone is served when as many slots are free as its MinFetch, or after its Linger,
// like a listener without a pool. Beside others that wait it is served when a third of its share is free, if
// that is less: the batches are smaller, and cost more requests. While a busy member sends its dequeue, up
// to 250 ms, slots are kept for the next.
//
// # Delivery, order and shutdown
//
// These are those of the listeners. A member takes part while its listener runs, and what it holds
// returns as its handlers do, at the latest when Run returns: then also what handlers have that were
// abandoned. An outage of the handlers, a pause, a limit and an error hold no slots.
package slots
