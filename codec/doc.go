// Package codec turns a job of type T into body bytes and a body into the text
// of a message, and back. It is pure: no input or output, no clock, no state,
// so everything in it is safe for concurrent use.
//
// # Two steps
//
// A [Codec] knows T: [JSON], [Bytes] or [Text]. A [Format] knows the wire: Azure
// Queue Storage carries XML text, so a body that is no such text travels as
// Base64. [Seal] chooses what a format says; [Open] reads what others wrote:
// with [Auto] it recognises JSON as it stands and JSON in Base64, which most
// Azure tools write, so that producers in other languages need no setting.
package codec
