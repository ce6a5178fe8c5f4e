package codec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
)

// JSON is the default codec: encoding/json, with unknown fields ignored so that old and new
// programs can share a queue. A byte order mark in front is ignored. An empty body, one with more
// than one value, and the JSON null for a T that cannot hold it are errors: null is for pointers,
// maps, slices, interfaces and types with an UnmarshalJSON method. For others encoding/json would
// leave a zero T, a job that nobody sent.
func JSON[T any]() Codec[T] { return jsonCodec[T]{} }

type jsonCodec[T any] struct{}

// Encode leaves <, > and & unescaped: the XML around the text escapes them again, and six bytes
// for one would count towards the 64 KiB.
func (jsonCodec[T]) Encode(v T) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode %v as JSON: %w", reflect.TypeFor[T](), err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func (jsonCodec[T]) Decode(body []byte) (T, error) {
	var v T
	body = withoutMark(body)
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&v); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the body is empty")
		}
		return v, fmt.Errorf("decode JSON as %v: %w", reflect.TypeFor[T](), err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return v, fmt.Errorf("decode JSON as %v: more than one value in the body", reflect.TypeFor[T]())
	}
	if isNull(body) && !holdsNull(reflect.TypeFor[T]()) {
		return v, fmt.Errorf("decode JSON as %v: the body is null, which this type cannot hold", reflect.TypeFor[T]())
	}
	return v, nil
}

func isNull(value []byte) bool {
	return bytes.Equal(bytes.Trim(value, jsonSpace), []byte("null"))
}

const jsonSpace = " \t\r\n"

// unmarshaler is the type of values that decode null themselves.
var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// holdsNull reports whether decoding null into a value of the type is more than leaving it zero.
func holdsNull(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice, reflect.Interface:
		return true
	}
	return reflect.PointerTo(t).Implements(unmarshaler)
}
