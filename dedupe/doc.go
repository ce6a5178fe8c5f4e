// Package dedupe recognizes messages whose jobs were handled before, so that a listener deletes them
// without handling the job again. A [Guard] is an option of listeners:
//
//	guard, err := dedupe.New(nil)
//	…
//	l := listener.New(q, ship, &listener.Options[Order]{Duplicates: guard})
//
// Such a message has the outcome Duplicate. State().Duplicates counts them, the observer sees them, and
// the log names each kind at level Info.
//
// # Where duplicates come from
//
// A queue delivers a message again if it was handled and not deleted: the delete failed, or the worker
// died, or its lease ended before it. A job is in the queue twice if the response to its enqueue was lost
// and it was sent again, or if a program calls Send twice. All of these are recognized.
//
// # The key
//
// A key names a job: the queue with its account, the kind, and the first of these that the message has:
//
//   - the dedupe key, SendOptions.Dedupe of package producer: equal for jobs that are the same job
//     sent twice
//   - the job id, which stays the same when a message is sent again, or redriven from a poison queue
//   - the message id, for messages without an envelope; one that is sent or redriven again is not
//     recognized
//
// So a job that shall run once more needs another dedupe key, or another job id, or must wait for the
// retention; a handler that sends its own job again must not reuse the id. A group is one message and has one key.
// A job that was sent to two queues is two jobs, also if they are shards of one package queue/sharded.
//
// # What is recorded
//
// A key is recorded when the handler has returned nil, and before the message is deleted, also if the
// lease was lost by then. Nothing else is recorded: not a failure, not poison, not a discard, not saved
// progress, not a group while an item is left. A group is recorded when each item has succeeded or was
// discarded, and one at least has succeeded in the last delivery. A message that was poison and is redriven is therefore handled, unless its job was
// handled by way of another message meanwhile. A job that was handled is never poison, however often its message
// comes again.
//
// # What is promised
//
// A job that was not handled to success is never deleted as a duplicate, whatever is killed, lost or out of
// order: the record follows the success. The opposite is not promised, and handlers must stay
// idempotent. The job is handled again
//
//   - if the worker dies between the handler's last effect and the record
//   - if two of its messages are handled at once: neither excludes or delays the other, in one process
//     or in several. A slot is free when the job has been recorded, so that one process recognizes what it
//     handles one after the other
//   - if its key was forgotten: a guard of [New] with its process, both kinds after
//     Options.Retention, and memory when Options.MaxKeys others were recorded
//   - if the store fails. Before the handler: the job is handled. After it: the message is deleted, and this
//     process remembers the key. Either is a DuplicatesError for OnError.
//
// A record without a response may have taken effect, which is right, because the job was handled.
//
// # In memory, or shared
//
// A guard of [New] knows what its own process handled. That is all that is needed for failed deletes and lost
// leases of a single process; a message that comes to another process, or comes back after
// a restart, is handled again. A guard of [NewShared] knows what every process with the same container
// handled. Its keys are blobs, whose names are hashes and whose contents are the keys, and their age is
// by the store's clock and this machine's. [Guard.Sweep] removes them when they are too old.
//
// # Cost
//
// In memory nothing is sent. A shared guard makes two calls of the store for each message, one before
// the handler and one after it, and one for a duplicate, or none if this process handled the job. A sweep
// lists the container and deletes each key with one call. A guard makes a failed message no cheaper: a
// retry is looked up again.
package dedupe
