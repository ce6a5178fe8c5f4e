// Package perkey lets one handler at a time run for each key, such as a customer or a file, in a
// process. It is middleware:
//
//	keys, err := perkey.New(nil)
//	…
//	l := listener.New(q, perkey.Wrap(keys, ship), nil)
//
// The key is that of the message, SendOptions.Key of package producer, or what a function makes of the
// job: [MiddlewareBy]. Jobs without a key are not limited. Jobs of different keys run at once as ever.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # What is promised
//
// Of the handlers that run inside one [Keys], no two have the same key, whatever listener and
// queue their jobs come from. A key is held from before the handler is called until it has
// returned, panicked or called runtime.Goexit. It is held too when the handler has lost its lease, has
// outlived its time-out, or was reported as stuck and given up: another job of the key then waits,
// possibly the same one, delivered again. A handler that never returns blocks its key for as long
// as the process lives, and nothing else.
//
// Order is not promised. Of the jobs that wait inside the process the first to come is the next to run, but a queue
// delivers in an order of its own, a failed job comes back after later ones, and so does one that was
// postponed. Nor is anything promised between processes: docs/ordering.md says how one reader for each
// shard of a queue makes it one at a time in a fleet, and what remains to be done by handlers.
//
// # Waiting
//
// A job whose key is taken waits in its slot, with its lease renewed, if its turn is expected within
// Options.Wait. It is postponed instead, given back to the queue without an attempt,
//
//   - if its turn will come later than that, by how long handlers of the key have taken
//   - if the jobs that wait, of whatever key, would take more than half of the slots of its listener, or those
//     of its key more than a quarter. So one busy key takes a quarter of the slots and the one in
//     which its handler runs, and many busy keys leave half of the slots to handlers
//   - if it has waited for Options.Wait, or for a tenth of its time-out
//
// A postponed job comes back when it is expected to be its turn: each takes the next place in a line that
// moves as fast as handlers of the key have returned, and is away for at most Options.MaxDelay. In a
// listener with fewer than four slots no job waits in one.
//
// The slots that count are Options.Concurrency of the listener. One that shares the slots of a pool, and gets few of them, should have a
// Concurrency of its own that says how many.
//
// A message that does not record attempts (it has no envelope, and Options.Wire.AcceptForeign of the listener is not
// set) cannot be given back without one. It waits in its slot until its turn comes, and a flood of such
// messages with one key can take all slots.
//
// # Time-outs, outages and the stop
//
// Waiting in a slot counts as handling: the time-out of the handler has begun, so a job waits for at most a tenth of what is left of
// it, and the handler has nine tenths at least. A time-out that begins with the work belongs inside: use
// context.WithTimeout in the handler. Observers see the wait in the time of the handler.
//
// A postponed job says nothing about whether handlers work, and does not end an outage of them. A job
// that waits when the worker is stopped goes on waiting, runs, or is postponed, as ever; when the grace period ends
// it is given back.
//
// # Groups, kinds, batches
//
// A handler of a group is called for each item, each with its own key; the key of the message is that of all
// items. Put the middleware inside of listener.EachItem:
//
//	listener.EachItem(perkey.Wrap(keys, ship), 8)
//
// The items of a group with one key take turns, in the order in which they arrive. An item that waits
// for another one of its group takes no part of the concurrency of EachItem, and its time-out stands still.
// When it is its turn it has its part of the concurrency again, its time-out begins anew, and it
// competes with other messages for the key as a job does. If another message has the key for longer than Options.Wait, the item waits on
// without a part of the concurrency, as long as other items of its group run. If nothing else of the
// group runs, the item and those behind it are postponed. So a group with one key takes as long as its
// handlers, and is not given back. Up to 1,024 items of a group wait, each in a goroutine.
//
// Middleware between EachItem and perkey keeps what it holds while an item waits. Put a semaphore inside of
// perkey: outside, its permits are held by items that wait, and an item that gets no part of the
// concurrency for a minute is postponed. If several perkey middlewares are nested, only the outermost
// lets items wait for each other in their group.
//
// In the opposite order, with EachItem inside of the middleware, a group would be one job whose items run
// at once. EachItem then fails every job before its handler runs, with an error that says what to write
// instead. A handler is a function, so the mistake cannot be found before the first job.
//
// Kinds may share a Keys: then a key is held by one job of any kind. Outside of listener.Batch a batch
// has at most one job of each key. Middleware for one Keys must not be nested, or the inner one waits
// for the outer one.
//
// # Cost
//
// A job that finds its key free, or waits, costs no request more, as long as the wait is shorter than half of the
// visibility: the default of Options.Wait is. A job that is postponed costs an update and its share of another
// dequeue each time: usually once or twice, and once more for each Options.MaxDelay that its turn is
// away. A flood of n jobs of one key therefore costs one to three times n updates more than n jobs of n keys, and as many
// deliveries. Meanwhile the key is hardly ever free. A body that is stored elsewhere is read at each delivery,
// because it is not known before whether the handler may run.
//
// Short handlers of a flooded key are slower than the key allows, because a queue hides messages for whole
// seconds: of the jobs that have to come back as many run per second as may wait in slots, and one. With
// 64 slots these are 17 a second.
//
// Memory is taken for keys that are held, which are no more than there are slots, and for the lines of at most 1,024
// keys that are free while postponed jobs of theirs are away.
package perkey
