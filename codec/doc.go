// Package codec turns a job of type T into body bytes and a body into the text
// of a message, and back. It is pure: no input or output, no clock, no state,
// so everything in it is safe for concurrent use.
//
// # Two steps
//
// A [Codec] knows T: [JSON], [Bytes] or [Text]. A [Format] knows the wire: Azure
// Queue Storage carries XML text, so a body that is no such text travels as
// Base64. [Seal] writes what a format says; [Open] reads what others wrote: with
// [Auto] it recognises an envelope, JSON as it stands, and JSON in Base64, which
// most Azure tools write, so that producers in other languages need no setting.
//
// # The envelope
//
// A line with a [Head] in front of the body: which job this is, when it was sent,
// how often it failed. An envelope of a newer version than this program knows is
// [ErrNewer], not a broken one, so that releases can be rolled out side by side
// (B-19).
package codec
