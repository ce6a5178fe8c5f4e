package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Codec encodes values to bodies and decodes them; Decode(Encode(v)) is v. An error means that
// the value or the body is invalid and will stay so: the message is poison. Implementations
// must be safe for concurrent use.
type Codec[T any] interface {
	Encode(v T) ([]byte, error)
	Decode(body []byte) (T, error)
}

// JSON is the default codec: encoding/json, with unknown fields ignored so that old and new
// programs can share a queue. An empty body, or one with more than one value, is an error.
func JSON[T any]() Codec[T] { return jsonCodec[T]{} }

type jsonCodec[T any] struct{}

// Encode leaves <, > and & unescaped: the XML around the text escapes them again, and six bytes
// for one would count towards the 64 KiB.
func (jsonCodec[T]) Encode(v T) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode %T as JSON: %w", v, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func (jsonCodec[T]) Decode(body []byte) (T, error) {
	var v T
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&v); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the body is empty")
		}
		return v, fmt.Errorf("decode JSON as %T: %w", v, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return v, fmt.Errorf("decode JSON as %T: more than one value in the body", v)
	}
	return v, nil
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
