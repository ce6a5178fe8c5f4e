package codec

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"reflect"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/bodytext"
)

// XML is a codec for XML documents: encoding/xml, with unknown elements and attributes ignored.
// Give T an XMLName with a tag, and documents with another root element are errors; without one
// any root will do. What encoding/xml would write as something else is an error of Encode: a
// string with a character that XML cannot carry, and a value that is not one element, such as nil
// or a slice. On Decode a byte order mark, comments and processing instructions around the
// document are ignored; an empty body and one with anything else around the document are errors,
// and so is an encoding other than UTF-8. A document that calls itself UTF-16, as .NET writes them
// into strings, is read as the UTF-8 that it is.
func XML[T any]() Codec[T] {
	return xmlCodec[T]{hidden[T](reflect.TypeFor[xml.Marshaler](), reflect.TypeFor[xml.Unmarshaler]())}
}

type xmlCodec[T any] struct{ unfit error }

func (c xmlCodec[T]) Check() error { return c.unfit }

func (c xmlCodec[T]) Encode(v T) ([]byte, error) {
	if c.unfit != nil {
		return nil, c.unfit
	}
	body, err := xml.Marshal(&v) // a method of *T encodes too
	if err == nil {
		err = checkEncoded(reflect.ValueOf(&v).Elem(), body)
	}
	if err != nil {
		return nil, fmt.Errorf("encode %v as XML: %w", reflect.TypeFor[T](), err)
	}
	return body, nil
}

func (xmlCodec[T]) Decode(body []byte) (T, error) {
	var v T
	if err := bodytext.DecodeXML(body, &v); err != nil {
		return v, fmt.Errorf("decode XML as %v: %w", reflect.TypeFor[T](), err)
	}
	return v, nil
}

// checkEncoded refuses what Decode would not return as it was.
func checkEncoded(v reflect.Value, body []byte) error {
	for (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && !v.IsNil() {
		v = v.Elem()
	}
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Array {
		return errors.New("a document has one root element: put the slice into a struct")
	}
	if err := bodytext.CheckXML(body); err != nil {
		return fmt.Errorf("the result is no document: %w", err)
	}
	if bytes.ContainsRune(body, utf8.RuneError) && hasForeignText(v) { // what encoding/xml writes for it
		return errors.New("a string has a character that XML cannot carry: keep binary in Base64")
	}
	return nil
}

// hasForeignText reports whether a string or byte slice in v is not valid XML text.
func hasForeignText(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.String:
		return !bodytext.IsXMLText([]byte(v.String()))
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
			return !bodytext.IsXMLText(v.Bytes())
		}
		for i := range v.Len() {
			if hasForeignText(v.Index(i)) {
				return true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); (f.IsExported() || f.Anonymous) && f.Tag.Get("xml") != "-" && hasForeignText(v.Field(i)) {
				return true
			}
		}
	case reflect.Pointer, reflect.Interface:
		return !v.IsNil() && hasForeignText(v.Elem())
	}
	return false
}
