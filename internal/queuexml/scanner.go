package queuexml

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// ErrMalformed means that a document is not well-formed XML, or uses what this package does not
// accept: document types, encodings other than UTF-8, and its own entities.
var ErrMalformed = errors.New("malformed XML")

// ErrUnexpected means that a document is well-formed as far as it was read, but an element is
// missing or unexpected.
var ErrUnexpected = errors.New("unexpected XML")

// scanner reads a document. Every method leaves pos behind what it has read. Unless it
// is lax, the document was checked to be valid UTF-8 of XML characters.
type scanner struct {
	doc []byte
	pos int
	lax bool // whether text may have characters that XML does not allow, as they are or as references
}

// open checks the document's characters and skips to its root element.
func open(doc []byte) (*scanner, error) {
	return openFor(doc, false)
}

// openFor is open. If lax, it accepts any characters.
func openFor(doc []byte, lax bool) (*scanner, error) {
	doc = bytes.TrimPrefix(doc, []byte("\uFEFF"))
	s := &scanner{doc: doc, lax: lax}
	if !lax {
		if err := s.checkCharacters(); err != nil {
			return nil, err
		}
	}
	if s.has("<?xml") && len(doc) > 5 && isSpace(doc[5]) {
		if err := s.declaration(); err != nil {
			return nil, err
		}
	}
	return s, s.misc()
}

// checkCharacters refuses invalid UTF-8 and characters that XML does not allow. It checks ASCII,
// which is nearly everything, eight bytes at a time.
func (s *scanner) checkCharacters() error {
	for i := 0; i < len(s.doc); {
		if len(s.doc)-i >= 8 && allPlain(binary.LittleEndian.Uint64(s.doc[i:])) {
			i += 8
			continue
		}
		if c := s.doc[i]; ' ' <= c && c < utf8.RuneSelf || c == '\n' || c == '\r' || c == '\t' {
			i++
			continue
		}
		r, n := utf8.DecodeRune(s.doc[i:])
		if r == utf8.RuneError && n == 1 {
			return s.malformed(i, "not UTF-8")
		}
		if !isChar(r) {
			return s.malformed(i, "character %U, which XML does not allow", r)
		}
		i += n
	}
	return nil
}

// allPlain reports whether all eight bytes are within ' ' … 0x7F: no byte has its highest bit
// set, before or after subtracting ' '. A borrow from the byte below can only cause a false
// negative; then the bytes are checked one by one.
func allPlain(eight uint64) bool {
	const highest, blank = 0x8080808080808080, 0x2020202020202020
	return (eight|(eight-blank))&highest == 0
}

// declaration reads the XML declaration. Only its encoding matters.
func (s *scanner) declaration() error {
	end := bytes.Index(s.doc[s.pos:], []byte("?>"))
	if end < 0 {
		return s.malformed(s.pos, "unterminated XML declaration")
	}
	inside := &scanner{doc: s.doc[:s.pos+end], pos: s.pos + len("<?xml")}
	known := 0
	for ; ; known++ {
		blank := inside.skipSpace()
		if inside.pos == len(inside.doc) {
			break
		}
		raw, value, err := inside.attribute()
		if err != nil {
			return err
		}
		name := string(raw)
		switch {
		case !blank, known == 0 && name != "version", known > 0 && name == "version":
			return s.malformed(s.pos, "not an XML declaration")
		case name == "version" && value == "1.0":
		case name == "encoding" && known == 1 && strings.EqualFold(value, "utf-8"):
		case name == "standalone" && (value == "yes" || value == "no") && known < 3:
		default:
			return s.malformed(s.pos, "XML declaration with %s %q: only version 1.0 in UTF-8 is supported", name, value)
		}
		if name == "standalone" {
			known = 3
		}
	}
	if known == 0 {
		return s.malformed(s.pos, "XML declaration without a version")
	}
	s.pos += end + len("?>")
	return nil
}

// misc skips white space, comments and processing instructions (production Misc).
func (s *scanner) misc() error {
	for {
		s.skipSpace()
		switch {
		case s.has("<!--"):
			if err := s.comment(); err != nil {
				return err
			}
		case s.has("<?"):
			if err := s.instruction(); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func (s *scanner) comment() error {
	body := s.doc[s.pos+len("<!--"):]
	end := bytes.Index(body, []byte("--"))
	if end < 0 || !bytes.HasPrefix(body[end:], []byte("-->")) {
		return s.malformed(s.pos, "a comment must end with --> and contain no other --")
	}
	s.pos += len("<!--") + end + len("-->")
	return nil
}

func (s *scanner) instruction() error {
	start := s.pos
	s.pos += len("<?")
	target := s.name()
	end := bytes.Index(s.doc[s.pos:], []byte("?>"))
	if len(target) == 0 || strings.EqualFold(string(target), "xml") || end < 0 || end > 0 && !isSpace(s.doc[s.pos]) {
		return s.malformed(start, "not a processing instruction")
	}
	s.pos += end + len("?>")
	return nil
}

// start reads a start tag, ignores its attributes, and reports whether it is an empty element.
func (s *scanner) start() (name []byte, empty bool, err error) {
	at := s.pos
	if !s.skip("<") {
		return nil, false, s.malformed(at, "expected an element")
	}
	if name = s.name(); len(name) == 0 {
		return nil, false, s.malformed(at, "not an element: document types are not accepted")
	}
	var seen [][]byte
	for {
		blank := s.skipSpace()
		switch {
		case s.skip("/>"):
			return name, true, nil
		case s.skip(">"):
			return name, false, nil
		case !blank:
			return nil, false, s.malformed(s.pos, "unterminated start tag of %s", name)
		}
		attribute, _, err := s.attribute()
		if err != nil {
			return nil, false, err
		}
		if len(seen) == maxAttributes {
			return nil, false, s.malformed(s.pos, "element %s has more than %d attributes", name, maxAttributes)
		}
		for _, other := range seen {
			if bytes.Equal(other, attribute) {
				return nil, false, s.malformed(s.pos, "duplicate attribute %s", attribute)
			}
		}
		seen = append(seen, attribute)
	}
}

// maxAttributes limits the attributes of an element, so that finding duplicates stays linear. The
// service's documents have none on the elements read here.
const maxAttributes = 16

// end reads the end tag of an element.
func (s *scanner) end(name string) error {
	at := s.pos
	if !s.skip("</") || string(s.name()) != name {
		return s.malformed(at, "expected the end of element %s", name)
	}
	s.skipSpace()
	if !s.skip(">") {
		return s.malformed(at, "expected the end of element %s", name)
	}
	return nil
}

func (s *scanner) attribute() (name []byte, value string, err error) {
	at := s.pos
	name = s.name()
	s.skipSpace()
	if len(name) == 0 || !s.skip("=") {
		return nil, "", s.malformed(at, "not an attribute")
	}
	s.skipSpace()
	if s.pos == len(s.doc) || s.doc[s.pos] != '"' && s.doc[s.pos] != '\'' {
		return nil, "", s.malformed(at, "attribute %s has no value in quotes", name)
	}
	quote := s.doc[s.pos]
	s.pos++
	length := bytes.IndexByte(s.doc[s.pos:], quote)
	if length < 0 {
		return nil, "", s.malformed(at, "unterminated attribute %s", name)
	}
	raw := s.doc[s.pos : s.pos+length]
	if bytes.IndexByte(raw, '<') >= 0 {
		return nil, "", s.malformed(at, "attribute %s contains <", name)
	}
	text, err := s.resolve(nil, raw)
	if err != nil {
		return nil, "", err
	}
	s.pos += length + 1
	return name, string(text), nil
}

// text reads character data up to the next tag: characters, references and CDATA sections. It
// skips comments and processing instructions.
func (s *scanner) text() (string, error) {
	raw, whole, err := s.readRun()
	if whole || err != nil {
		return string(raw), err // the only copy
	}
	out, err := s.appendRest(nil, raw)
	return string(out), err
}

func (s *scanner) appendText(dst []byte) ([]byte, error) {
	raw, whole, err := s.readRun()
	if err != nil {
		return dst, err
	}
	if whole {
		return append(dst, raw...), nil
	}
	return s.appendRest(dst, raw)
}

// readRun reads characters up to the next markup. whole reports whether they are the whole text
// and need no decoding.
func (s *scanner) readRun() (raw []byte, whole bool, err error) {
	length := bytes.IndexByte(s.doc[s.pos:], '<')
	if length < 0 {
		return nil, false, s.malformed(len(s.doc), "the document ends within an element")
	}
	raw = s.doc[s.pos : s.pos+length]
	if i := bytes.Index(raw, []byte("]]>")); i >= 0 {
		return nil, false, s.malformed(s.pos+i, "]]> outside a CDATA section")
	}
	s.pos += length
	return raw, bytes.IndexByte(raw, '&') < 0 && bytes.IndexByte(raw, '\r') < 0 && s.has("</"), nil
}

// appendRest appends a text that consists of more than its first run.
func (s *scanner) appendRest(out, raw []byte) ([]byte, error) {
	for {
		var err error
		if out, err = s.resolve(out, raw); err != nil {
			return nil, err
		}
		switch {
		case s.has("<![CDATA["):
			body := s.doc[s.pos+len("<![CDATA["):]
			end := bytes.Index(body, []byte("]]>"))
			if end < 0 {
				return nil, s.malformed(s.pos, "unterminated CDATA section")
			}
			out = appendLines(out, body[:end])
			s.pos += len("<![CDATA[") + end + len("]]>")
		case s.has("<!--"):
			if err := s.comment(); err != nil {
				return nil, err
			}
		case s.has("<?"):
			if err := s.instruction(); err != nil {
				return nil, err
			}
		default:
			return out, nil
		}
		if raw, _, err = s.readRun(); err != nil {
			return nil, err
		}
	}
}

// resolve appends raw with references replaced and line ends normalized.
func (s *scanner) resolve(dst, raw []byte) ([]byte, error) {
	for {
		i := bytes.IndexByte(raw, '&')
		if i < 0 {
			return appendLines(dst, raw), nil
		}
		dst = appendLines(dst, raw[:i])
		raw = raw[i+1:]
		// The longest reference that means anything is &#x10FFFF;, but any
		// number of leading zeros is well formed, so the whole is searched.
		length := bytes.IndexByte(raw, ';')
		if length < 0 {
			return nil, s.malformed(s.pos, "unterminated reference")
		}
		r, ok := reference(string(raw[:length]), s.lax)
		if !ok {
			return nil, s.malformed(s.pos, "reference to an unknown entity or an invalid character")
		}
		dst = utf8.AppendRune(dst, r)
		raw = raw[length+1:]
	}
}

// reference returns the character that a reference stands for. Unless lax, it must be one that
// XML allows.
func reference(name string, lax bool) (rune, bool) {
	switch name {
	case "amp":
		return '&', true
	case "lt":
		return '<', true
	case "gt":
		return '>', true
	case "apos":
		return '\'', true
	case "quot":
		return '"', true
	}
	digits, ok := strings.CutPrefix(name, "#")
	if !ok {
		return 0, false
	}
	base := 10
	if hexadecimal, ok := strings.CutPrefix(digits, "x"); ok {
		base, digits = 16, hexadecimal
	}
	n, err := strconv.ParseUint(digits, base, 32) // refuses signs and underscores
	if err != nil || n > utf8.MaxRune || !lax && !isChar(rune(n)) {
		return 0, false
	}
	return rune(n), true
}

// appendLines appends text with its line ends normalized (section 2.11).
func appendLines(dst, text []byte) []byte {
	for {
		i := bytes.IndexByte(text, '\r')
		if i < 0 {
			return append(dst, text...)
		}
		dst = append(dst, text[:i]...)
		dst = append(dst, '\n')
		text = bytes.TrimPrefix(text[i+1:], []byte("\n"))
	}
}

// name reads a name of ASCII letters, digits and XML punctuation. XML allows others, but the
// service uses none.
func (s *scanner) name() []byte {
	start := s.pos
	for ; s.pos < len(s.doc); s.pos++ {
		switch c := s.doc[s.pos]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_':
			continue
		case ('0' <= c && c <= '9' || c == '-' || c == '.' || c == ':') && s.pos > start:
			continue
		}
		break
	}
	return s.doc[start:s.pos]
}

// skipSpace skips white space and reports whether there was any.
func (s *scanner) skipSpace() bool {
	start := s.pos
	for s.pos < len(s.doc) && isSpace(s.doc[s.pos]) {
		s.pos++
	}
	return s.pos > start
}

func (s *scanner) has(prefix string) bool {
	return len(s.doc)-s.pos >= len(prefix) && string(s.doc[s.pos:s.pos+len(prefix)]) == prefix
}

func (s *scanner) skip(prefix string) bool {
	if !s.has(prefix) {
		return false
	}
	s.pos += len(prefix)
	return true
}

func (s *scanner) malformed(at int, format string, args ...any) error {
	return fmt.Errorf("%w at byte %d: %s", ErrMalformed, at, fmt.Sprintf(format, args...))
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// AppendText appends s as character data. It escapes only what must be escaped: &, < and >, and
// the carriage return, which a parser would turn into a line feed (XML 1.0, section 2.11).
func AppendText(dst []byte, s string) []byte {
	return appendEscaped(dst, s, false)
}

// unescaped are the bytes that need no escaping in character data and attributes. One look-up for
// nearly every byte halved the cost of responding to a dequeue.
var unescaped = func() (table [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		table[c] = c != '&' && c != '<' && c != '>' && c != '"'
	}
	return table
}()

func appendEscaped(dst []byte, s string, attribute bool) []byte {
	start := 0 // everything before it is in dst
	for i := 0; i < len(s); {
		c := s[i]
		if unescaped[c] {
			i++
			continue
		}
		var escaped string
		width := 1
		switch {
		case c == '&':
			escaped = "&amp;"
		case c == '<':
			escaped = "&lt;"
		case c == '>':
			escaped = "&gt;"
		case c == '\r':
			escaped = "&#xD;"
		case c == '"' && attribute:
			escaped = "&#34;"
		case c == '\n' && attribute:
			escaped = "&#xA;"
		case c == '\t' && attribute:
			escaped = "&#x9;"
		case c == '"', c == '\n', c == '\t':
			i++
			continue
		default:
			var r rune
			r, width = utf8.DecodeRuneInString(s[i:])
			if isChar(r) && (r != utf8.RuneError || width > 1) {
				i += width
				continue
			}
			escaped = "\uFFFD"
		}
		dst = append(dst, s[start:i]...)
		dst = append(dst, escaped...)
		i += width
		start = i
	}
	return append(dst, s[start:]...)
}

// isChar is the production Char of XML 1.0, section 2.2.
func isChar(r rune) bool {
	return r == '\t' || r == '\n' || r == '\r' ||
		0x20 <= r && r <= 0xD7FF || 0xE000 <= r && r <= 0xFFFD || 0x10000 <= r && r <= 0x10FFFF
}
