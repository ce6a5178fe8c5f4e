// Package localengine is what the embedded engine, package localqueue, shares with two other
// packages. Package filequeue makes its state durable, with a [Store] in a directory. Package emulator
// uses what the protocol has and the port does not: [Queue], [Account], and [Watcher].
//
// The engine keeps everything in memory except the texts of messages, and decides
// everything there. A store records changes, returns the whole state once when it is opened
// again, and reads texts.
//
// # Atomicity and durability
//
// A commit is a list of changes, which take effect in their order, and all or none of them.
// The engine answers its callers only after a commit has returned nil. After a kill or a
// power cut the store has every commit that returned nil, and the one that was under way
// either completely or not at all.
//
// A commit that fails must have changed nothing, also for a later [Store.Load]: the engine
// undoes it in memory and goes on. If the store cannot tell, it returns [ErrUncertain] and
// refuses all further commits. Expect failures for want of space: commits that free some
// should work when others do not.
//
// # Changes
//
// The first commit of a new store is one [SecretSaved]. Every later one that is not empty
// ends with a [CommittedAt]. Ordinals of queues and sequences of messages grow and are never
// used again. A queue is saved before its messages are added. A [MessagesExpired] may name
// messages that are gone; every other change of a message names one that is there.
//
// Some changes concern any number of messages: [QueueCleared], [QueueDropped]. Callers wait
// for a commit, so a store may remove those messages in later ones, and says so with more.
// Until then [Store.Load] must not return them.
//
// # Reading
//
// A [View] has the texts as of when it was opened, while commits go on. The engine asks it
// only for messages that were committed and not removed by then, and closes it without
// waiting for a commit, so Commit and Close may wait until open views are closed.
//
// # Concurrency
//
// Calls of Load, Commit and Close never overlap. Views are opened, read and closed on other
// goroutines meanwhile. None is opened during or after Close. A store belongs to one engine.
package localengine
