package codec

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"
)

// Format is how a head and a body become the text of a message.
type Format int

// The formats.
const (
	// Auto recognises all formats, in this order: an [Envelope]; valid JSON is the body; Base64
	// of valid JSON or of an XML document is decoded, see [Verbatim]; anything else is the body as it
	// is, for which [Explain] says what was tried. Written, it means Envelope. It is the zero value.
	Auto Format = iota

	// Envelope is a line with the head and then the body. It is the only format that counts
	// attempts apart from deliveries.
	Envelope

	// Plain is the body itself, which must be valid XML text. It has no head.
	Plain

	// Base64 is the body in standard Base64, for consumers that expect it. It is a third larger
	// and has no head.
	Base64
)

var formatNames = [...]string{Auto: "auto", Envelope: "envelope", Plain: "plain", Base64: "base64"}

// String returns the name of the format.
func (f Format) String() string {
	if f < 0 || int(f) >= len(formatNames) {
		return fmt.Sprintf("Format(%d)", int(f))
	}
	return formatNames[f]
}

// MarshalText returns the name of the format, for JSON, flags and logs. An unknown format is an
// error.
func (f Format) MarshalText() ([]byte, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	return []byte(f.String()), nil
}

// UnmarshalText parses what [Format.MarshalText] returns.
func (f *Format) UnmarshalText(text []byte) error {
	if i := slices.Index(formatNames[:], string(text)); i >= 0 {
		*f = Format(i)
		return nil
	}
	return fmt.Errorf("codec: unknown format %q", text)
}

// Check returns an error for an unknown format.
func (f Format) Check() error {
	if f < Auto || f > Base64 {
		return fmt.Errorf("codec: unknown format %v", f)
	}
	return nil
}

// HasHead reports whether the format, when written, carries a [Head].
func (f Format) HasHead() bool { return f == Auto || f == Envelope }

// Seal returns the text that carries head and body. Formats without a head leave it out. An
// unknown format is an error. Seal does not check whether a Plain body is XML text; the queue
// does before it sends (driver.CheckText).
func Seal(h Head, body []byte, f Format) (string, error) {
	switch f {
	case Auto, Envelope:
		return sealEnvelope(h, body), nil
	case Plain:
		return string(body), nil
	case Base64:
		return base64.StdEncoding.EncodeToString(body), nil
	}
	return "", fmt.Errorf("seal a body: unknown format %v", f)
}

// OpenForeign is [Open] for a queue on which messages are put into envelopes when they are
// given back: an envelope is opened as one whatever the format, and anything else by the
// format. A text that begins like an envelope but is not a valid one is not treated as an
// envelope, unless it has a newer version.
func OpenForeign(text string, f Format, understood ...Feature) (Head, []byte, Format, error) {
	if f == Auto || f == Envelope || !strings.HasPrefix(text, prefix) {
		return Open(text, f, understood...)
	}
	h, body, err := openEnvelope(text, understood)
	if err != nil && !errors.Is(err, ErrNewer) {
		return Open(text, f, understood...)
	}
	return h, body, Envelope, err
}

// Open returns the head and the body that text carries, and its format, which is never Auto. A
// message without an envelope has a zero head. An unreadable text is an error; [ErrNewer] means
// that a newer program can read it, or a reader that understands another [Feature] than those
// given: then the head is returned without the body.
func Open(text string, f Format, understood ...Feature) (Head, []byte, Format, error) {
	switch f {
	case Plain:
		return Head{}, []byte(text), Plain, nil
	case Base64:
		body, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil {
			return Head{}, nil, Base64, fmt.Errorf("open a message as Base64: %w", err)
		}
		return Head{}, body, Base64, nil
	case Envelope:
		if !strings.HasPrefix(text, prefix) {
			return Head{}, nil, Envelope, fmt.Errorf("open a message: it has no envelope: %.20q", text)
		}
		h, body, err := openEnvelope(text, understood)
		return h, body, Envelope, err
	case Auto:
		if strings.HasPrefix(text, prefix) {
			h, body, err := openEnvelope(text, understood)
			return h, body, Envelope, err
		}
		body, format := recognize(text)
		return Head{}, body, format, nil
	}
	return Head{}, nil, f, fmt.Errorf("open a message: unknown format %v", f)
}

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
	d := newXMLDecoder(body)
	root, err := rootElement(d)
	if err == nil {
		err = d.DecodeElement(&v, &root)
	}
	if err == nil {
		err = endOfXML(d)
	}
	if err != nil {
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
	if err := checkXML(body); err != nil {
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
		return !isXMLText([]byte(v.String()))
	case reflect.Slice, reflect.Array:
		if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
			return !isXMLText(v.Bytes())
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

// newXMLDecoder returns a decoder of the body that reads declared encodings as [XML] says.
func newXMLDecoder(body []byte) *xml.Decoder {
	d := xml.NewDecoder(bytes.NewReader(withoutMark(body)))
	d.CharsetReader = func(charset string, r io.Reader) (io.Reader, error) {
		switch strings.ToLower(charset) {
		case "utf-16", "us-ascii":
			return r, nil
		}
		return nil, fmt.Errorf("its encoding is %.40q, not UTF-8", charset)
	}
	return d
}

// checkXML returns why the body is not one well-formed document.
func checkXML(body []byte) error {
	d := newXMLDecoder(body)
	if _, err := rootElement(d); err != nil {
		return err
	}
	if err := d.Skip(); err != nil {
		return err
	}
	return endOfXML(d)
}

func rootElement(d *xml.Decoder) (xml.StartElement, error) {
	for {
		token, err := d.Token()
		switch one := token.(type) {
		case xml.StartElement:
			return one, nil
		case xml.CharData:
			if len(bytes.TrimSpace(one)) > 0 {
				return xml.StartElement{}, errors.New("text stands before the root element")
			}
		}
		if errors.Is(err, io.EOF) {
			return xml.StartElement{}, errors.New("it has no element")
		}
		if err != nil {
			return xml.StartElement{}, err
		}
	}
}

// endOfXML returns an error if anything but white space, comments and processing instructions
// follows the root element.
func endOfXML(d *xml.Decoder) error {
	for {
		token, err := d.Token()
		switch one := token.(type) {
		case xml.StartElement:
			return errors.New("it has more than one root element")
		case xml.CharData:
			if len(bytes.TrimSpace(one)) > 0 {
				return errors.New("text stands behind the root element")
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
