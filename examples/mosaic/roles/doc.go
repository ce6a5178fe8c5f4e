// Package roles is the photo mosaic service: three roles that communicate only over
// four queues and a blob store.
//
//	ClientInterface ── imagerequest ──> JobController ── slicerequest ──> ImageProcessor
//	       ▲                                │    ▲                              │
//	       └───────── imageresponse ────────┘    └──────── sliceresponse ───────┘
//
// A [Broker] is the client interface: it stores the picture and the tile library,
// requests a mosaic and delivers it. The job controller chooses the tiles, requests
// slices, and composes the mosaic when all slices are finished. Image processors
// render one slice each. [Open] makes all three, or some of them,
// on one account; any number of processes may do so.
//
// # Delivery
//
// Queues deliver at least once, so every step may run any number of times, concurrently, and may be
// interrupted anywhere. The result of a step is in the store, not in the messages that it received:
// package gather reports when all slices are in the store, so that a duplicate cannot finish a job
// early, and the mosaic is stored by a create, so that it is stored once. A request ends with a
// small record, the end of its gather, which is created once and stays. A message of a request that
// has ended is discarded. If a blob is missing while its request continues, the message is retried,
// and is poison after its last attempt. The record is written before the clean-up, and every step
// checks for it after it has stored something, so that a late step cleans up after itself.
//
// All programs on an account must share the store: if the blobs of a message are in another store,
// it is poison after its last attempt.
//
// [Clean] removes the blobs of requests without a waiting client.
//
// A request with n slices takes 2n+2 messages, without crashes and redeliveries.
//
// # Concurrency and shutdown
//
// All work ends with the context it is given. The roles of one process share a memory
// budget for decoding pictures.
package roles
