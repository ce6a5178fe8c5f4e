// Package sharded makes one queue of several, for those who send: more messages a second than one
// queue takes. The shards may lie in several accounts. Package shards listens to them.
//
// A [Queue] is a [queue.Sender], so a producer takes it in the place of a queue. Each Enqueue chooses a
// shard, by the [Strategy] of the options, and sends one request to it.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Delivery
//
// As that of the shards: a message that was accepted is in one of them. A message whose response was
// lost, and that is sent again, goes to the same shard, where its duplicate can be recognised, as long as
// the text is the same, the Queue is, and the shard is not removed meanwhile. The Queue remembers at
// least the last 1,024 such messages. If the response did not come in time, or was lost twice, and the
// shard is suspect, the message goes to another one: then Message.MaybeTwice says that both may have it.
//
// A shard is suspect while its last request failed, or while a request takes more than 500 ms and ten
// times as long as the last one of the fastest shard. Messages go to the others then. After a failure one
// message tries the shard after 100 ms, and after further ones twice as long later, up to 4 s; while it
// is late, one tries it every 4 s. Where tries would hold more than a sixth of the senders, they come less
// often: a program that sends one message at a time tries a shard that hangs for 10 s once a minute.
// When a try is accepted in time the shard takes part again. If all shards are suspect, they are chosen
// as if none were. With [ByKey] a message stays at the shard of its key.
//
// An Enqueue never sends a second request by itself: the one that failed returns its error, and the
// caller's repetition goes elsewhere.
//
// # Order
//
// None, also where a single queue would keep it roughly: shards are read independently of each other.
// With [ByKey] all messages with one key are in one shard, while shards are neither added nor removed.
//
// # Concurrency and shutdown
//
// A Queue is safe for concurrent use. Shards can be added and removed while messages are sent. It has no
// goroutine beyond those of a call, which end before it returns, so there is nothing to shut down.
//
// # Cost
//
// One request a message, as with one queue; [LeastDepth] also reads the depth of every shard, once in
// DepthEvery. Listening costs more: each shard is polled, or wants its own wake-ups.
package sharded
