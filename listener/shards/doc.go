// Package shards listens to several queues as one: what package queue/sharded spreads over them, a
// [Listener] takes off them, for one handler. It runs a listener.Listener for each shard, and
// their handlers share one set of slots.
//
// So each shard has its own loops, idle curve, back-off, leases and poison queue. A shard that is
// throttled, fails or is missing waits alone, and takes no slots meanwhile; the others go on. A shard that
// the service refuses as unauthorized rests alone too: it is reported and tried again, and [Listener.Run]
// ends only when every shard is refused. Errors name the shard: those of requests are a *queue.Error with
// its name, and those of a shard as a whole an [*Error]. Interceptors, observers and the log see it as
// the queue of a delivery.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Delivery and order
//
// Delivery is at least once, as of each listener; handlers must be idempotent. There is no order between
// shards. Shards that have more work than others get more of the slots while these have none, and
// equal shares while all have (slots.MemberOptions.Weight).
//
// # Resharding
//
// Shards come and go while producers and listeners run, in several processes. What must hold is that
// somebody listens to a queue as long as anybody may place messages on it.
//
// One more: create the queue; [Listener.Add] it in the workers, in one process at least; then add it to
// the producers. One less: remove it from the producers; then [Listener.Remove] it in the workers, which
// waits until the queue has been empty for Options.Settle, what is hidden included. Settle is the time in
// which the last producer must have heard of it. See docs/resharding.md in the repository, also for
// poison queues and for what a removal cannot know.
//
// # Concurrency
//
// A Listener is safe for concurrent use. Handlers of all shards together are at most as many as
// there are shared slots.
//
// # Shutdown
//
// When the context of Run ends all shards drain at the same time, each as a listener does, so Run takes no
// longer than one. [Listener.Halt] ends the grace period of all. A removal that goes on then ends with
// an error, because nobody knows whether the queue is empty.
//
// # Cost
//
// That of a listener for each shard: an idle one polls once in Idle.Max, so k shards cost k times
// the polls, or one safety poll a minute each with wake-ups. A removal reads the depth of its shard ten times
// in Settle, or each 30 s if that is less; a refused shard costs a request a minute.
package shards
