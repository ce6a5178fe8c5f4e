// Package bodytext knows bodies as text: a byte order mark, which bytes XML carries and how, and
// documents, which it reads strictly.
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

// IsXMLText reports whether XML 1.0 carries the body unchanged: see [FirstInvalid].
func IsXMLText(body []byte) bool { return FirstInvalid(body) < 0 }

// FirstInvalid returns where the first character is that XML 1.0 does not carry, or that is not UTF-8, and -1 if
// there is none. Section 2.2 of XML says which characters it carries.
func FirstInvalid[S string | []byte](text S) int {
	for i := 0; i < len(text); {
		if i += plainPrefix(text[i:]); i == len(text) {
			break
		}
		// Something near here is no plain ASCII. A few characters are looked at one by one, and then the words again.
		for end := min(i+wordsSize, len(text)); i < end; {
			c := text[i]
			if c < utf8.RuneSelf {
				if c < ' ' && c != '\t' && c != '\n' && c != '\r' {
					return i
				}
				i++
				continue
			}
			r, n := utf8.DecodeRuneInString(string(text[i:min(i+utf8.UTFMax, len(text))]))
			if r == utf8.RuneError && n == 1 || r == 0xFFFE || r == 0xFFFF { // UTF-8 cannot encode the other invalid ones
				return i
			}
			i += n
		}
	}
	return -1
}

// wordsSize is how many bytes plainPrefix looks at together.
const wordsSize = 32

// plainPrefix returns the length of a prefix that is ASCII without control characters, in steps of wordsSize.
func plainPrefix[S string | []byte](text S) int {
	const spaces, tops = 0x2020202020202020, 0x8080808080808080
	n := 0
	for ; len(text)-n >= wordsSize; n += wordsSize {
		s := text[n : n+wordsSize]
		a, b, c, d := word(s), word(s[8:]), word(s[16:]), word(s[24:])
		// The top bit of a byte is set if it is no ASCII, or if a space is more than it.
		if (a|(a-spaces)|b|(b-spaces)|c|(c-spaces)|d|(d-spaces))&tops != 0 {
			break
		}
	}
	return n
}

// word returns the first eight bytes. The compiler makes one load of it.
func word[S string | []byte](s S) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// Escapes returns how many bytes a text grows by when it is escaped for XML.
func Escapes(text string) int {
	n := 0
	for i := range references {
		n += growth(i) * strings.Count(text, escaped[i:i+1])
	}
	return n
}

// EscapesOf is [Escapes] of bytes.
func EscapesOf(text []byte) int {
	n := 0
	for i := range references {
		n += growth(i) * bytes.Count(text, escapedBytes[i:i+1])
	}
	return n
}

// AppendEscaped appends a text that XML carries, escaped as encoding/xml does it.
func AppendEscaped(dst []byte, text string) []byte {
	from := 0
	for i := range len(text) {
		if at := referenceOf[text[i]]; at > 0 {
			dst = append(append(dst, text[from:i]...), references[at-1]...)
			from = i + 1
		}
	}
	return append(dst, text[from:]...)
}

// escaped has the characters that are escaped, and references in their order what replaces each.
const escaped = "\"'&\t\n\r<>"

var (
	references   = [len(escaped)]string{"&#34;", "&#39;", "&amp;", "&#x9;", "&#xA;", "&#xD;", "&lt;", "&gt;"}
	escapedBytes = []byte(escaped)
	referenceOf  = func() (at [256]uint8) { // by character: the index in references, from 1; or 0
		for i := range escaped {
			at[escaped[i]] = uint8(i + 1)
		}
		return at
	}()
)

// growth returns by how many bytes the character with this index in escaped grows.
func growth(i int) int { return len(references[i]) - 1 }

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
