package codec

import "bytes"

// Codec encodes values to bodies and decodes them; Decode(Encode(v)) is v. An error means that
// the value or the body is invalid and will stay so: the message is poison. One that wraps
// [ErrNewer] means that a newer program can decode the body: the message is left to it.
// Implementations must be safe for concurrent use.
type Codec[T any] interface {
	Encode(v T) ([]byte, error)
	Decode(body []byte) (T, error)
}

// Bytes is a codec that leaves the body as it is. Decode does not copy.
func Bytes() Codec[[]byte] { return bytesCodec{} }

type bytesCodec struct{}

func (bytesCodec) Encode(v []byte) ([]byte, error)    { return v, nil }
func (bytesCodec) Decode(body []byte) ([]byte, error) { return body, nil }

// Text is a codec that returns the body as a string.
func Text() Codec[string] { return textCodec{} }

type textCodec struct{}

func (textCodec) Encode(v string) ([]byte, error)    { return []byte(v), nil }
func (textCodec) Decode(body []byte) (string, error) { return string(body), nil }

// byteOrderMark begins what some .NET and Windows programs write as UTF-8. It means nothing.
var byteOrderMark = []byte("\uFEFF")

// withoutMark returns the body without a byte order mark in front.
func withoutMark(body []byte) []byte { return bytes.TrimPrefix(body, byteOrderMark) }
