// Package bodytext knows bodies as text: a byte order mark, which bytes XML carries, and documents,
// which it reads strictly.
package bodytext

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// IsXMLText reports whether XML 1.0 carries the body unchanged: UTF-8 with only the characters
// that section 2.2 allows.
func IsXMLText(body []byte) bool {
	for i := 0; i < len(body); {
		c := body[i]
		if c < utf8.RuneSelf {
			if c < ' ' && c != '\t' && c != '\n' && c != '\r' {
				return false
			}
			i++
			continue
		}
		r, n := utf8.DecodeRune(body[i:])
		if r == utf8.RuneError && n == 1 || r == 0xFFFE || r == 0xFFFF {
			return false
		}
		i += n
	}
	return true
}

// byteOrderMark begins what some .NET and Windows programs write as UTF-8. It means nothing.
var byteOrderMark = []byte("\uFEFF")

// WithoutMark returns the body without a byte order mark in front.
func WithoutMark(body []byte) []byte { return bytes.TrimPrefix(body, byteOrderMark) }

// JSONSpace is the white space of JSON.
const JSONSpace = " \t\r\n"

// DecodeXML decodes one document into what v points to. A byte order mark, comments and processing
// instructions around the document are ignored; anything else around it is an error. So is a
// declared encoding other than UTF-8, but for US-ASCII, which is a part of it, and UTF-16, which
// .NET writes into strings that are UTF-8.
func DecodeXML(document []byte, v any) error {
	d := newDecoder(document)
	root, err := rootElement(d)
	if err != nil {
		return err
	}
	if err := d.DecodeElement(v, &root); err != nil {
		return err
	}
	return end(d)
}

// newDecoder returns a decoder of the document. DecodeXML says which encodings it may declare.
func newDecoder(document []byte) *xml.Decoder {
	d := xml.NewDecoder(bytes.NewReader(WithoutMark(document)))
	d.CharsetReader = func(charset string, r io.Reader) (io.Reader, error) {
		switch strings.ToLower(charset) {
		case "utf-16", "us-ascii":
			return r, nil
		}
		return nil, fmt.Errorf("its encoding is %.40q, not UTF-8", charset)
	}
	return d
}

// CheckXML returns why the bytes are not one well-formed document, as DecodeXML reads them.
func CheckXML(document []byte) error {
	d := newDecoder(document)
	if _, err := rootElement(d); err != nil {
		return err
	}
	if err := d.Skip(); err != nil {
		return err
	}
	return end(d)
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

// end returns an error if anything but white space, comments and processing instructions
// follows the root element.
func end(d *xml.Decoder) error {
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
