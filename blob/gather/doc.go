// Package gather waits for n distinct parts, which many workers make in any order, and then does one thing once: it sums up a
// batch, or composes a picture from its slices. It is the fan-in after a fan-out, by jobs that are delivered at least once. Its
// state is in a blob store, so that workers and those who wait for them may be any number of processes.
//
//	g, err := gather.New(store, "batches", nil)
//	…
//	// The worker, for each part:
//	err = g.Put(ctx, batch, part, result)
//	// then it sends a message that the part is there, whose handler does this:
//	done, err := g.Complete(ctx, batch, parts)
//	if err != nil || !done {
//		return err
//	}
//	end, err := g.Once(ctx, batch, sumUp)
//	…
//	return g.Sweep(ctx, batch)
//
// The handler of the worker may do all of that itself. A second message is for when another role shall do it.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Parts
//
// A part is one blob, which is created once: the first content stays, and one that is put again is not an error. So a part
// counts once, however often its message is delivered, and in however many messages. Parts are numbered, and all who ask
// know how many there are; a gather has no start. An id names a gather: 1 to 190 lower-case letters, digits,
// hyphens, underscores and dots that neither begin nor end it. Ids must never be used again, but for the same work.
//
// # What is promised
//
// A message of a gather is handled in this order: Put, Complete, Once, what follows from the end, Sweep; and it is deleted
// only after that, or when Complete has returned false. If every part has such a message and every message is
// delivered until it was handled:
//
//   - An end is recorded. Complete is true for the part that is stored last, because whoever asks after it sees all of
//     them. A process that dies leaves a message that is delivered again, and for which Complete is true again.
//   - One end counts. Every call of Once, in every process, returns it.
//   - The function of Once begins after all parts were stored, and has run to its end when the end is recorded.
//   - After an end nothing is left but the end, even if messages come late: one that does stores its part again, and its own Sweep
//     deletes it. A part can be left by a put that the store performs after its caller has given up, and by a handler that
//     fails between its Put and its Sweep when its lease is over and another handler has deleted its message. The next Sweep
//     deletes it.
//
// That the function runs once is not promised, as nothing can: a process may die after its effects and before the end is
// recorded. See [Gather.Once].
//
// A part whose message became poison never comes, and its gather waits for ever. A program that handles poison may end it
// with a result that says so, by Once, and sweep it.
//
// # Concurrency and shutdown
//
// Everything is safe for concurrent use. Nothing here starts a goroutine, and there is nothing to close. All calls end with
// their contexts, also while they wait for another handler of the process. A call that was cut short is repeated by
// whoever handles the message again. What a process remembers saves calls and decides nothing.
//
// # Cost
//
// A part costs at most three calls of the store, up to 5,000 parts: one to put it, and two to ask. Parts are not listed for
// each: a process remembers one part that was missing, and as long as that is still missing and no end is recorded the gather is not
// complete. When it is stored the parts are listed, one call for each 5,000, and another missing one is chosen at random: on average
// half of what is missing is stored before it. So n parts take about ln n lists for each process that asks, and one more for
// each message after the last part. Handlers of one gather that ask at the same time share the answer.
//
// The end costs two calls, and one for every further message. Sweep costs one for each part, and two.
package gather
