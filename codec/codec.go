package codec

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/millrace/millrace/internal/bodytext"
)

// Codec encodes values to bodies and decodes them; Decode(Encode(v)) is v. An error means that
// the value or the body is invalid and will stay so: the message is poison. One that wraps
// [ErrNewer] means that a newer program can decode the body: the message is left to it.
// If an implementation has a method Check() error, a listener calls it before it runs, and does not
// run if it returns an error. Implementations must be safe for concurrent use.
type Codec[T any] interface {
	Encode(v T) ([]byte, error)
	Decode(body []byte) (T, error)
}

// Bytes is a codec that leaves the body as it is. Decode does not copy.
func Bytes() Codec[[]byte] { return bytesCodec{} }

type bytesCodec struct{}

// ReadsAnyText marks the codec for package envelope.
func (bytesCodec) ReadsAnyText() {}

func (bytesCodec) Encode(v []byte) ([]byte, error)    { return v, nil }
func (bytesCodec) Decode(body []byte) ([]byte, error) { return body, nil }

// Text is a codec that returns the body as a string.
func Text() Codec[string] { return textCodec{} }

type textCodec struct{}

// ReadsAnyText marks the codec for package envelope.
func (textCodec) ReadsAnyText() {}

func (textCodec) Encode(v string) ([]byte, error)    { return []byte(v), nil }
func (textCodec) Decode(body []byte) (string, error) { return string(body), nil }

// JSON is the default codec: encoding/json, with unknown fields ignored so that old and new
// programs can share a queue. A byte order mark in front is ignored. An empty body, one with more
// than one value, and the JSON null for a T that cannot hold it are errors: null is for pointers,
// maps, slices, interfaces and types with an UnmarshalJSON method. For others encoding/json would
// leave a zero T, a job that nobody sent.
func JSON[T any]() Codec[T] {
	return jsonCodec[T]{hidden[T](marshaler, unmarshaler)}
}

type jsonCodec[T any] struct{ unfit error }

func (c jsonCodec[T]) Check() error { return c.unfit }

// Encode leaves <, > and & unescaped: the XML around the text escapes them again, and six bytes
// for one would count towards the 64 KiB.
func (c jsonCodec[T]) Encode(v T) ([]byte, error) {
	if c.unfit != nil {
		return nil, c.unfit
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(&v); err != nil { // a method of *T encodes too
		return nil, fmt.Errorf("encode %v as JSON: %w", reflect.TypeFor[T](), err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func (jsonCodec[T]) Decode(body []byte) (T, error) {
	var v T
	body = bodytext.WithoutMark(body)
	if json.Unmarshal(body, &v) != nil {
		var err error
		if v, err = decodeBad[T](body); err != nil {
			return v, fmt.Errorf("decode JSON as %v: %w", reflect.TypeFor[T](), err)
		}
	}
	if bytes.Equal(bytes.Trim(body, bodytext.JSONSpace), []byte("null")) && !holdsNull(reflect.TypeFor[T]()) {
		return v, fmt.Errorf("decode JSON as %v: the body is null, which this type cannot hold", reflect.TypeFor[T]())
	}
	return v, nil
}

// decodeBad decodes what json.Unmarshal refuses. A decoder copies the body, and says better what is wrong with it.
func decodeBad[T any](body []byte) (v T, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&v); errors.Is(err, io.EOF) {
		return v, errors.New("the body is empty")
	} else if err != nil {
		return v, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return v, errors.New("more than one value in the body")
	}
	return v, nil
}

// The types of values that encode and decode themselves, null too.
var (
	marshaler       = reflect.TypeFor[json.Marshaler]()
	unmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	textMarshaler   = reflect.TypeFor[encoding.TextMarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// hidden returns an error if T is a struct, or a pointer to one, whose fields are all unexported, unless
// it implements one of these interfaces, or one of those in package encoding. The fields of an embedded
// struct count as its own.
func hidden[T any](own ...reflect.Type) error {
	t := reflect.TypeFor[T]()
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if !isStruct(t) {
		return nil
	}
	empty := true
	for _, f := range reflect.VisibleFields(t) {
		part := f.Anonymous && f.Tag == "" && (isStruct(f.Type) || f.Type.Kind() == reflect.Pointer && isStruct(f.Type.Elem()))
		if f.IsExported() && !part {
			return nil
		}
		empty = empty && (part || f.Name == "_")
	}
	if empty {
		return nil
	}
	for _, one := range append(own, textMarshaler, textUnmarshaler) {
		if reflect.PointerTo(t).Implements(one) {
			return nil
		}
	}
	return fmt.Errorf("%v has no exported field, so that its jobs would be empty: export the fields that a job needs", reflect.TypeFor[T]())
}

func isStruct(t reflect.Type) bool { return t.Kind() == reflect.Struct }

// holdsNull reports whether decoding null into a value of the type is more than leaving it zero.
func holdsNull(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
		return true
	}
	return reflect.PointerTo(t).Implements(unmarshaler)
}
