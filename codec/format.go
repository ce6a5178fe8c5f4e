package codec

import (
	"errors"
)

// Format is how an envelope and a body become the text of a message. A constructor or a Send that
// gets a text which is not one of the constants returns an error.
type Format string

// The formats.
const (
	// Auto recognises all formats, in this order: an [Envelope]; valid JSON is the body; Base64 of
	// valid JSON or of an XML document is decoded; anything else is the body as it is. [Text] and
	// [Bytes] read any text, so for them a word such as "MTIz", which is also the Base64 of 123, is
	// the body; Base64 of a JSON object, an array, or XML is still decoded. Written, Auto means
	// Envelope. It is the zero value.
	Auto Format = ""

	// Envelope is a line with the job id and the number of attempts, and then the body. It is the
	// only format that counts attempts apart from deliveries. docs/protocol.md describes it.
	Envelope Format = "envelope"

	// Plain is the body itself, which must be valid XML text.
	Plain Format = "plain"

	// Base64 is the body in standard Base64, for consumers that expect it. It is a third larger.
	Base64 Format = "base64"
)

// ErrNewer means that a newer program is needed to read a message: its envelope has a version or a
// feature that the reader does not know, or its body is of a newer form. The message is not
// poison, because another worker can read it: it is given back with a delay, without an attempt.
// The delay is 3 or 4 s for its first 40 deliveries, and then doubles up to an hour.
// A [Codec] says so of a body with an error that wraps ErrNewer. A message without an envelope that
// is not adopted has only its dequeue count: it is poison after as many deliveries as attempts.
var ErrNewer = errors.New("newer version than this program reads")
