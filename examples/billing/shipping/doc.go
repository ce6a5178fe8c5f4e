// Package shipping brings the usage records of a day to the Initiator over a line that breaks.
//
// On the premises, [Consolidate] sorts the lines of usage files by day into a [Spool], which cuts each day
// into a [Batch]: a [Manifest] and numbered pieces of whole lines, each with its checksum. A [Client] ships batches
// over HTTP. At the Initiator a [Server] stores manifest and pieces in a blob.Store, from which [ReadManifest]
// and [OpenPiece] read them.
//
// # Protocol
//
// All requests can be repeated. Batches are named by their day, and pieces numbered from 0.
//
//	GET  /batches/{batch}            200 Status | 404 before its manifest came
//	PUT  /batches/{batch}            the Manifest with its Content-Digest: 200 Status | 409 another batch of this day
//	PUT  /batches/{batch}/pieces/{n} 200 | 404 before the manifest came | 422 the size or the checksum is wrong
//	POST /batches/{batch}/complete   200 Status | 412 pieces are missing
//
// Every response has the header Shipping-Version. Errors are a sentence of plain text. Responses 429 and 5xx, and
// connections that break, mean: ask for the status and go on from there.
//
// # Delivery semantics
//
// What the server confirmed is stored. A piece is stored whole and correct or not at all, and once. A client that
// lost a response asks which pieces are missing, so that it sends none twice. Complete is called at least
// once for a batch.
package shipping
