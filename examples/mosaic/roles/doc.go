// Package roles is the photo mosaic service: three roles that know each other
// only by four queues and a blob store.
//
//	ClientInterface ── imagerequest ──> JobController ── slicerequest ──> ImageProcessor
//	       ▲                                │    ▲                              │
//	       └───────── imageresponse ────────┘    └──────── sliceresponse ───────┘
//
// A [Broker] is the client interface: it stores the picture and the tile library,
// asks for a mosaic and takes delivery of it. The job controller cuts the picture
// into slices, and puts the mosaic together when all slices are there. Image
// processors lay one slice each. [Open] makes all three on one account; how many
// processes do so, and where, makes no difference to any of them.
//
// # Delivery
//
// Queues deliver at least once, so every step may run any number of times, at the
// same time, and be cut off anywhere. What a step has achieved is what it has
// stored, never which messages came: slices are counted in the store, so that a
// duplicate finishes no job early; the mosaic is stored by a create, so that it
// is put together once. A request ends with a small record of how it ended, which
// is created once and stays; whoever meets a message of a request that has ended
// discards it, and a message whose blob is missing though its request goes on is
// poison at once. The record is written before anything is cleaned up, and a step
// looks for it after it has stored something, so that a late one cleans up after
// itself.
//
// Programs that share the queues must share the store. The queue of image requests says in
// its metadata which store that is; a program with another one fails with an
// [ElsewhereError] when it opens the account, or as soon as it finds out.
//
// A request without crashes and redeliveries is 2n+2 messages for n slices.
//
// # Concurrency and shutdown
//
// Everything runs under the contexts it is given and ends with them. Pictures are
// decoded within a budget of memory that the roles of one process share.
package roles
