// Package roles is the photo mosaic service: three roles that know each other
// only by four queues and a blob store.
//
//	ClientInterface ── imagerequest ──> JobController ── slicerequest ──> ImageProcessor
//	       ▲                                │    ▲                              │
//	       └───────── imageresponse ────────┘    └──────── sliceresponse ───────┘
//
// A [Broker] is the client interface: it stores the picture and the tile library,
// requests a mosaic and delivers it. The job controller cuts the picture into
// slices, and composes the mosaic when all slices are finished. Image processors
// render one slice each. [Open] makes all three on one account; any number of
// processes may do so.
//
// # Delivery
//
// Queues deliver at least once, so every step may run any number of times,
// concurrently, and may be interrupted anywhere. The result of a step is what it
// has stored, never which messages came: slices are counted in the store, so that
// a duplicate cannot finish a job early; the mosaic is stored by a create, so that
// it is composed once. A request ends with a small record, which is created once
// and stays. A message of a request that has ended is discarded; a message whose
// blob is missing while its request continues is poison at once. The record is
// written before anything is cleaned up, and a step looks for it after it has
// stored something, so that a late step cleans up after itself.
//
// Programs that share the queues must share the store. The queue of image requests says in
// its metadata which store that is. A program with another store fails with an
// [ElsewhereError] when it opens the account, or as soon as it detects the mismatch.
//
// A request without crashes and redeliveries is 2n+2 messages for n slices.
//
// # Concurrency and shutdown
//
// Everything runs under the contexts it is given and ends with them. Pictures are
// decoded within a budget of memory that the roles of one process share.
package roles
