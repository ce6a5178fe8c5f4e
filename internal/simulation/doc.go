// Package simulation consists of tests: they play whole worlds of workers, queues and
// faults on a fake clock, and audit the fate of every message.
//
// # A world
//
// A seed decides everything (the plan files):
//
//   - one embedded engine;
//   - one to five worker processes, each with its own options and its own fault queue (a busy
//     or failing service, lost requests and responses, slow calls, calls that are executed
//     twice or after their callers have given up, a clock that is up to five minutes off, an
//     unavailable queue or poison queue, death during a call or at an instant); their settings
//     change while they run, and their hooks may panic;
//   - jobs with and without envelopes, undecodable, of a newer release, delayed, and with a TTL;
//   - handlers that succeed, fail, panic, snooze, poison, discard, save their progress, work in
//     batches, take longer than their lease or their time-out, and ignore their context;
//   - an outage of a database that all handlers need, or of a store of bodies, which then may hang;
//   - in one world in seven many jobs that fail with the same error, so that they are limited;
//   - in one world in seven wake-ups, which are lost, late, doubled, or for other queues, and connections
//     that are lost: idle workers then have no loops, and a safety poll finds what nobody heard of;
//   - in one world in seven pauses, by the program of a worker or by the flag in the metadata of the queue;
//   - in one world in ten a producer that sends through an outage of the queue, to backlog queues in another
//     account, and a syphon, which may be killed, that brings the messages home; in half of them many senders also meet a
//     time in which the queue is busy and refuses most messages;
//   - in one world in ten of those with several workers a pool whose slots they share, of one rank or several,
//     with reserves; they come and go, and none is killed;
//   - in one world in ten without wake-ups, pauses, backlog queues and pools several queues as one: a producer that
//     places messages on shards, and workers that listen to all of them, to one that is added later too;
//   - in one world in eight keys, of which a process runs one handler at a time: the others wait in their slots,
//     or are postponed;
//   - in one world in eight workers with limits of their own on requests and messages;
//   - in one world in twelve workers with an adaptive limit on their handlers, whose dependency is exhausted for some jobs;
//   - in one world in eight messages of two kinds, of which a worker knows both, one, or neither;
//   - in one world in nine messages that carry groups of jobs, each of which has its own result;
//   - in one world in eight workers that report in a control queue, over a network as bad as the other;
//   - stops, halts and kills, and a queue that is deleted and created again.
//
// One world in five has no faults, and the audit of it is exact.
//
// Every world ends with a time without faults (calm_test.go). The surviving workers must empty
// the queue within a bound that is computed from the remaining messages (deadline_test.go), and
// must then still have all their slots and loops. If none survived, a healthy worker does it.
//
// agents_test.go has worlds of their own, in which an agent scales the workers: it is killed, its requests fail, and the platform loses
// its answers.
//
// scenarios_test.go has the worst incidents known in the field, each as its own world.
//
// # The ledger
//
// The history (history_test.go) is recorded on the server's side of all faults and in the
// handlers. The ledger (ledger_test.go, message_test.go, delivery_test.go and the files beside
// them) reads it, and checks the promises of dispatcher/DESIGN.md message by message without knowing
// the implementation. An accepted message was handled to success, is in the poison queue, was
// discarded, is still in the queue, has expired, or was dropped with its queue. A delete follows
// a success, a discard or a copy. Each attempt is recorded once, and runs respect MaxAttempts and
// MaxLost. Handlers respect Concurrency, dequeues the free slots, and loops their bounds. Members of a pool leave
// others what these have and reserve (pools_test.go). No two handlers of a process have the same key at one time (keys_test.go), no limit is exceeded by
// what waits for it (limits_test.go), no slot of an adaptive limit is left taken, and a job that
// found its dependency exhausted has not failed (adaptive_test.go), a viewer of the control queue sees the living workers and them alone (beacons_test.go), and messages with one key are in one shard if that places them (shards_test.go). Counters
// agree with the calls. A job of a kind that its worker does not know is neither handled nor poisoned there
// (kinds_test.go). An item of a group that is recorded as done, or as failed for good, is not handled again, what a
// settlement records is what happened, and a group is deleted when all its items are done (groups_test.go). In a pause nothing is dequeued, a worker that takes messages reads the flag within a minute,
// and while the flag pauses it no more often (pauses_test.go). What was diverted
// comes home, as it was sent, and twice only if a response was lost or a syphon killed (pairing_test.go). No process acts after its end, and no goroutine is left, which the bubble
// checks. A delivery without a settlement, which is what makes duplicates, needs a cause, and
// the causes are counted. TestLedgerFindsViolations breaks every promise in turn.
//
// # Running it
//
//	go test ./internal/simulation                      100 seeds; 300 with MILLRACE_LONG=1
//	go test -short ./internal/simulation               20
//	go test ./internal/simulation -seeds 10000
//	go test ./internal/simulation -run TestSeeds -seed 42    one, with its trace if it fails
//	go test ./internal/simulation -run TestReplay -replays 2000
//
// One seed in 25 is also played over the whole client, azurequeue with net/http and with
// azurequeue/http1, connections in memory, and the emulator. The history must be the same,
// entry by entry.
//
// # Replay
//
// Every random decision is a pure function of the seed and of its subject, every call and every
// run has its own duration, and events that affect each other never happen at the same instant:
// loops that are woken together poll one after the other (stagger_test.go), successive steps of a
// loop are a nanosecond apart, and a new loop comes after those that are woken as it starts. So the
// order of goroutines does not matter, and a seed has one trace. TestReplay checks this for its seeds,
// also under the race detector, which shuffles goroutines; of the first 2,000 seeds three have two
// traces now and then. It leaves out the worlds in which a message waits because its source fails: which
// messages of a batch have the places of the source depends on the order of their goroutines. The same
// holds for worlds in which two batches wait for one reading of the pause. It also leaves out those in
// which chance or several listeners decide: those with backlog queues, which are chosen at random; with a
// pool or shards, whose listeners ask for the same slots at one instant; and with pauses and several
// loops, which continue together.
//
// Worlds therefore never have two undecodable messages with the same text. They would be
// decoded at the same instant, and the codec could not distinguish them.
package simulation
