// Package dedupe recognizes messages whose jobs were handled before or are being handled, so that a
// listener deletes them without handling the job again. A [Guard] is an option of listeners:
//
//	guard, err := dedupe.New(nil)
//	…
//	l := listener.New(q, ship, &listener.Options[Order]{Duplicates: guard})
//
// Such a message has the outcome Duplicate. State().Outcomes counts them, the observer sees them,
// and the log names each kind at level Info.
//
// This package is experimental: any release may change it. See docs/stability.md.
//
// # Where duplicates come from
//
// A queue delivers a message again if it was handled and not deleted: the delete failed, or the
// worker died, or its lease ended before it. A job is in the queue twice if the response to its
// enqueue was lost and it was sent again, or if a program calls Send twice: a double click, a
// retried request. All of these are recognized, even back to back.
//
// # The key
//
// A key names a job: the queue with its account, the kind, and the first of these that the message
// has:
//
//   - the dedupe key, SendOptions.DedupeKey of package producer: equal for jobs that are the same job
//     sent twice
//   - the job id, which stays the same when a message is sent again, or redriven from a poison queue
//   - the message id, for messages without an envelope; one that is sent or redriven again is not
//     recognized
//
// So a job that shall run once more needs another dedupe key, or another job id, or must wait for
// the retention; a handler that sends its own job again must not reuse the id. A group is one
// message and has one key. A job that was sent to two queues is two jobs, also if they are shards
// of one package queue/sharded.
//
// # What is recorded
//
// A key is recorded when the handler has returned nil, and before the message is deleted, also if
// the lease was lost by then. Nothing else is recorded: not a failure, not poison, not a discard,
// not saved progress, not a group while an item is left. A group is recorded when each item has
// succeeded or was discarded, and one at least has succeeded in the last delivery. A message that
// was poison and is redriven is therefore handled, unless its job was handled by way of another
// message meanwhile. A job that was handled is never poison, however often its message comes again.
//
// # What is promised
//
// A job that was not handled to success is never deleted as a duplicate, whatever is killed, lost
// or out of order: the record follows the success. The opposite is not promised, and handlers must
// stay idempotent. The job is handled again
//
//   - if the worker dies between the handler's last effect and the record
//   - if its key was forgotten: a guard of [New] with its process, both kinds after
//     Options.Retention, and memory when Options.MaxKeys others were recorded
//   - if its handler has lost the lease of its message, and another one begins meanwhile
//   - if it is in two processes at once that share no store
//   - if the store fails. Before the handler: the job is handled, and held in this process only. After it: the
//     message is deleted, and this process remembers the key. Either is a DuplicatesError for OnError.
//
// A record without a response may have taken effect, which is right, because the job was handled.
//
// # Twins of a job in progress
//
// While a message is being handled it holds its key, and its twins wait. Up to four of them wait in
// their slots, until the key has been held for a second. The others are given back without an
// attempt, for a second, and then for twice as long after each delivery, up to a minute. If the
// handler succeeds, its twins are duplicates. If it fails, the next message to come is handled.
//
// In a process the key is held until the handler has returned, at most for the lease of its
// message. Between processes a marker in the store holds it. The marker lasts as long as the lease,
// is extended with it, and ends 5 s after it, because the store's times are inexact. So a twin of
// a job whose process has died waits for as long, and the message of that job itself does not.
//
// A twin that cannot be given back without an attempt is handled: a message without room for the
// record, or one that would expire before it comes again.
//
// # In memory, or shared
//
// A guard of [New] knows what its own process handled. That is all that is needed for failed
// deletes and lost leases of a single process; a message that comes to another process, or comes
// back after a restart, is handled again. A guard of [NewShared] knows what every process with the
// same container handled. Its keys are blobs, whose names are hashes and whose contents are the
// keys, and their age is by the store's clock. [Guard.Sweep] removes them when they are too old.
//
// # Cost
//
// In memory nothing is sent. A shared guard makes two calls of the store for each job whose handler
// succeeds: it creates a blob before the handler and replaces it after it. Azure counts both as
// writes. A duplicate costs two calls, or none if this process handled the job. A failed attempt
// costs three, and so does one that ends before its handler, such as in an outage; each renewal of
// a lease costs one. A twin that waits costs two or three calls and an update of its message each
// time. After a crash, or if a key comes again after Options.Retention that no sweep has removed, a
// job costs nine. A sweep lists the container and deletes each key with one call.
//
// If the store stops responding, the jobs in progress wait for Options.Timeout once. Later jobs
// do not wait, except for one every 10 s that finds out whether it responds again.
package dedupe
