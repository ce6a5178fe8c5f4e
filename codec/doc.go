// Package codec converts a job of type T to body bytes and back. It is pure: no input or output, no
// clock, no state. Everything in it is safe for concurrent use.
//
// This package is stable: see docs/stability.md.
//
// # Two steps
//
// A [Codec] knows T: [JSON], [XML], [Bytes] or [Text]. A [Format] says how a message carries the
// body: Azure Queue Storage carries XML text, so a body that is not valid XML text is sent in
// Base64. Listeners and producers have options for both. With [Auto], the default, a listener
// recognises an envelope, plain JSON, and JSON or XML in Base64, which most Azure tools write, so
// that producers in other languages need no setting. The reason of a poison message that could not
// be read says what was tried.
//
// # The envelope
//
// An envelope is a line in front of the body: the job id, when it was sent, how often it failed.
// docs/protocol.md describes it for programs in other languages. Parameters that a program does not
// know survive it. An envelope of a newer version than this program knows is [ErrNewer], not an
// invalid one, so that releases can be rolled out side by side. So is one of a kind, with a stored
// body, or of a group, for a worker that does not handle these.
package codec
