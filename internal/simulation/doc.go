// Package simulation exists for its tests: it plays whole worlds of workers, queues and
// mishaps on a fake clock, and audits what came of every message.
//
// # A world
//
// A seed decides everything (the plan files): one embedded engine; one to five worker
// processes, each with options of its own behind a fault queue of its own (busy and
// failing service, requests and answers lost, slow calls, calls that are done twice or
// after their callers have given up, a clock that is up to five minutes off, a queue or a
// poison queue that is away, death in the middle of a call or at an instant), whose settings
// change while they run and whose hooks may panic; jobs with and without envelopes,
// undecodable, of a newer release, delayed and mortal; handlers that succeed, fail, panic,
// snooze, poison, discard, save their progress, work in batches, take longer than their lease
// or their time-out and ignore their context; an outage of the database that they all need;
// stops, halts and kills; a queue that is deleted and made again. One world in five has no
// faults, and its books are exact.
//
// Every world ends without faults (calm_test.go): the workers that survived must empty the
// queue within a bound that is computed from what is left (deadline_test.go), and must then
// still have all their slots and loops. Where none survived a healthy worker does it.
//
// days_test.go has the worst days that the field knows, each as a world of its own.
//
// # The books
//
// The history (history_test.go) is written where things happen: on the server's side of
// all faults and in the handlers. The books (books_test.go, account_test.go,
// delivery_test.go and those beside them) read it from the outside, by
// the promises of docs/design.md, message by message: a message that was accepted was
// handled to success, is in the poison queue, was discarded, is still in the queue, has
// expired or was dropped with its queue; a delete comes after a success, a discard or a
// copy; attempts are recorded once each, runs keep to MaxAttempts and MaxLost; handlers
// keep to Concurrency, dequeues to the free slots, loops to their bounds; counters agree
// with the calls; nobody acts after its end; no goroutine is left, which the bubble
// itself sees to. A delivery that ended in nothing, which is what makes duplicates, needs
// a cause, and the causes are counted. TestTheBooksNotice breaks every promise in turn.
//
// # Running it
//
//	go test ./internal/simulation                      1,000 seeds, 100 with the race detector
//	go test -short ./internal/simulation               a tenth of them
//	go test ./internal/simulation -seeds 10000
//	go test ./internal/simulation -run TestSeeds -seed 42    one, with its trace if it fails
//	go test ./internal/simulation -run TestReplay -replays 2000
//
// One seed in 25 is also played over the whole client, azurequeue with net/http and with
// azurequeue/http1, connections in memory, and the emulator: the same must come of it,
// entry by entry.
//
// # Replay
//
// All chance is a pure function of the seed and of what it is about, every call and every
// run takes a time of its own, and nothing happens at the same instant as something else
// that it would matter to: loops that are woken together ask one after the other
// (stagger_test.go), and what a loop does next it does a nanosecond later than what it did.
// Then the order of goroutines does not matter, and a seed has one trace. TestReplay holds
// that for its seeds, under the race detector too, which shuffles goroutines. Of the others
// about two in a thousand have more than one trace: something that one release of a message
// or one settlement wakes two loops for, of which either may be the first.
//
// One thing is kept out of the worlds for it: two messages of the same text that no codec
// can read. They would be found out at the same instant, and nothing tells the codec which
// is which.
package simulation
