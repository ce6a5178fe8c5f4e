// Package codec converts a job of type T to body bytes, and a body to the text of a message,
// and back. It is pure: no input or output, no clock, no state. Everything in it is safe for
// concurrent use.
//
// This package is stable: see docs/stability.md.
//
// # Two steps
//
// A [Codec] knows T: [JSON], [XML], [Bytes] or [Text]. A [Format] knows the wire: Azure Queue
// Storage carries XML text, so a body that is not valid XML text is sent in Base64. [Seal] writes
// the given format. [Open] reads what others wrote: with [Auto] it recognises an envelope, plain
// JSON, and JSON or XML in Base64, which most Azure tools write, so that producers in other
// languages need no setting. [Explain] says of a text that could not be read what was tried.
//
// # The envelope
//
// An envelope is a line with a [Head] in front of the body: the job id, when it was sent, how
// often it failed. Parameters that a program does not know survive it. An envelope of a newer
// version than this program knows is [ErrNewer], not an invalid one, so that releases can be rolled
// out side by side. So is one with a [Feature], a kind or a claim, for a reader that does not
// understand it: version 1 of the envelope is for everyone, and version 2 for those who do.
package codec
