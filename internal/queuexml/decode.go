package queuexml

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ParseMessages parses a QueueMessagesList document, the response to a put, get or peek, and
// calls take with each message in order. The message is valid until take returns. Omitted
// elements are zero. The strings of one message share one allocation and do not refer to the
// document.
//
// It accepts what the service writes: known elements in any order, each at most once, with times
// as [AppendTime] writes them. Texts may have characters that XML does not allow, which other
// programs may have sent: one such message must not hide the others of its batch. Otherwise the error is [ErrMalformed] or [ErrUnexpected], and the
// messages passed to take must be discarded. Errors contain no text. The caller limits the size.
func ParseMessages(doc []byte, take func(*Message)) error {
	s, err := openFor(doc, true)
	if err != nil {
		return err
	}
	empty, err := s.expect("QueueMessagesList")
	if err != nil {
		return err
	}
	if !empty {
		if err := s.messages(take); err != nil {
			return err
		}
	}
	if err := s.misc(); err != nil {
		return err
	}
	if s.pos != len(s.doc) {
		return s.malformed(s.pos, "unexpected content after the document")
	}
	return nil
}

// messages reads the content of the list and its end tag.
func (s *scanner) messages(take func(*Message)) error {
	p := messageParser{texts: make([]byte, 0, min(len(s.doc), 4<<10))}
	var m Message // reused, because it escapes to the heap
	for {
		if err := s.misc(); err != nil {
			return err
		}
		if s.has("</") {
			return s.end("QueueMessagesList")
		}
		empty, err := s.expect("QueueMessage")
		if err != nil {
			return err
		}
		p = messageParser{texts: p.texts[:0]}
		if !empty {
			if err := p.parse(s); err != nil {
				return err
			}
		}
		m = p.message()
		take(&m)
	}
}

type messageParser struct {
	m    Message // all but the strings
	seen uint    // a bit for each field

	// texts holds the strings one behind the other, so that they become one
	// string of the heap and a batch of 32 costs 32 allocations, not 96.
	texts             []byte
	id, receipt, text span
}

// span is a part of texts.
type span struct{ from, to int }

func (p *messageParser) message() Message {
	all := string(p.texts)
	m := p.m
	m.ID, m.Receipt, m.Text = all[p.id.from:p.id.to], all[p.receipt.from:p.receipt.to], all[p.text.from:p.text.to]
	return m
}

// parse reads the content of a message and its end tag.
func (p *messageParser) parse(s *scanner) error {
	for {
		if err := s.misc(); err != nil {
			return err
		}
		if s.has("</") {
			return s.end("QueueMessage")
		}
		if err := p.field(s); err != nil {
			return err
		}
	}
}

func (p *messageParser) field(s *scanner) error {
	at := s.pos
	name, empty, err := s.start()
	if err != nil {
		return err
	}
	var bit uint
	var into *span
	var date *time.Time
	switch string(name) {
	case "MessageId":
		bit, into = 1<<0, &p.id
	case "PopReceipt":
		bit, into = 1<<1, &p.receipt
	case "MessageText":
		bit, into = 1<<2, &p.text
	case "InsertionTime":
		bit, date = 1<<3, &p.m.Inserted
	case "ExpirationTime":
		bit, date = 1<<4, &p.m.Expires
	case "TimeNextVisible":
		bit, date = 1<<5, &p.m.NextVisible
	case "DequeueCount":
		bit = 1 << 6
	default:
		return fmt.Errorf("%w: unknown element at byte %d of a message", ErrUnexpected, at)
	}
	if p.seen&bit != 0 {
		return fmt.Errorf("%w: duplicate element at byte %d", ErrUnexpected, at)
	}
	p.seen |= bit

	from := len(p.texts)
	if !empty {
		if p.texts, err = s.appendText(p.texts); err != nil {
			return err
		}
		// The name is part of the document, which does not change.
		if !s.skip("</") || string(s.name()) != string(name) {
			return fmt.Errorf("%w: element at byte %d contains more than text", ErrUnexpected, at)
		}
		s.skipSpace()
		if !s.skip(">") {
			return s.malformed(s.pos, "expected the end of an element")
		}
	}
	if into != nil {
		*into = span{from, len(p.texts)}
		return nil
	}
	value := p.texts[from:]
	p.texts = p.texts[:from]
	var ok bool
	if date != nil {
		*date, ok = parseTime(value)
	} else {
		p.m.DequeueCount, ok = parseCount(value)
	}
	if !ok {
		return fmt.Errorf("%w: element at byte %d is not a time or number as the service writes it", ErrUnexpected, at)
	}
	return nil
}

// parseTime parses what [AppendTime] writes. It does not check that the weekday matches the date.
func parseTime(text []byte) (time.Time, bool) {
	const layout = http.TimeFormat // Mon, 02 Jan 2006 15:04:05 GMT
	if len(text) != len(layout) {
		return time.Time{}, false
	}
	for i := range layout {
		switch c := text[i]; {
		case '0' <= layout[i] && layout[i] <= '9':
			if c < '0' || c > '9' {
				return time.Time{}, false
			}
		case i >= len("Mon, 02 ") && i < len("Mon, 02 Jan"), i < len("Mon"): // names
		case c != layout[i]:
			return time.Time{}, false
		}
	}
	number := func(from, digits int) (n int) {
		for _, c := range text[from : from+digits] {
			n = 10*n + int(c-'0')
		}
		return n
	}
	month := nameIndex("JanFebMarAprMayJunJulAugSepOctNovDec", text[8:11])
	weekday := nameIndex("SunMonTueWedThuFriSat", text[:3])
	day, hour, minute, second := number(5, 2), number(17, 2), number(20, 2), number(23, 2)
	t := time.Date(number(12, 4), time.Month(month+1), day, hour, minute, second, 0, time.UTC)
	// time.Date normalizes a day that the month does not have.
	return t, month >= 0 && weekday >= 0 && t.Day() == day && day > 0 && hour < 24 && minute < 60 && second < 60
}

// nameIndex returns the index of a three-letter name, or -1.
func nameIndex(names string, name []byte) int {
	for i := 0; i < len(names); i += 3 {
		if names[i:i+3] == string(name) {
			return i / 3
		}
	}
	return -1
}

// parseCount parses a non-negative number of up to 18 digits.
func parseCount(text []byte) (n int64, ok bool) {
	if len(text) == 0 || len(text) > 18 {
		return 0, false
	}
	for _, c := range text {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	return n, true
}

// ErrValue means that an element has an invalid value, such as a number with letters.
var ErrValue = errors.New("value not allowed in XML")

// parts are the possible children of an element, with the function that reads each.
type parts map[string]func(s *scanner, name string, empty bool) error

// document parses a whole document with that root element.
func document(doc []byte, root string, content func(s *scanner, name string, empty bool) error) error {
	s, err := open(doc)
	if err != nil {
		return err
	}
	empty, err := s.expect(root)
	if err != nil {
		return err
	}
	if err := content(s, root, empty); err != nil {
		return err
	}
	if err := s.misc(); err != nil {
		return err
	}
	if s.pos != len(s.doc) {
		return s.malformed(s.pos, "unexpected content after the document")
	}
	return nil
}

// record reads an element's content and end tag: the parts in any order, each at most once. It
// removes from parts what it has read, and refuses an element that lacks a required part.
func (s *scanner) record(name string, empty bool, of parts, required ...string) error {
	err := s.elements(name, empty, func(s *scanner, child string, empty bool) error {
		read, ok := of[child]
		if !ok {
			return fmt.Errorf("%w: unknown or duplicate element before byte %d in %s", ErrUnexpected, s.pos, name)
		}
		delete(of, child)
		return read(s, child, empty)
	})
	for _, part := range required {
		if _, missing := of[part]; missing && err == nil {
			err = fmt.Errorf("%w: %s has no %s", ErrUnexpected, name, part)
		}
	}
	return err
}

// list reads an element's content and end tag: any number of items.
func (s *scanner) list(name string, empty bool, item string, read func(s *scanner, name string, empty bool) error) error {
	return s.elements(name, empty, func(s *scanner, child string, empty bool) error {
		if child != item {
			return fmt.Errorf("%w: element before byte %d is not %s, the only child of %s", ErrUnexpected, s.pos, item, name)
		}
		return read(s, child, empty)
	})
}

// elements reads an element's content and end tag. It skips white space, comments and processing
// instructions between elements.
func (s *scanner) elements(name string, empty bool, read func(s *scanner, child string, empty bool) error) error {
	if empty {
		return nil
	}
	for {
		if err := s.misc(); err != nil {
			return err
		}
		if s.has("</") {
			return s.end(name)
		}
		child, empty, err := s.start()
		if err != nil {
			return err
		}
		if err := read(s, string(child), empty); err != nil {
			return err
		}
	}
}

// textElement returns a function that reads an element's text into a string.
func textElement(into *string) func(*scanner, string, bool) error {
	return func(s *scanner, name string, empty bool) error {
		if empty {
			*into = ""
			return nil
		}
		text, err := s.text()
		if err != nil {
			return err
		}
		if !s.has("</") {
			return fmt.Errorf("%w: element %s contains more than text", ErrUnexpected, name)
		}
		*into = text
		return s.end(name)
	}
}

// boolean returns a function that reads an element's value true or false.
func boolean(into *bool) func(*scanner, string, bool) error {
	return func(s *scanner, name string, empty bool) error {
		var text string
		if err := textElement(&text)(s, name, empty); err != nil {
			return err
		}
		if text != "true" && text != "false" {
			return fmt.Errorf("%w: %s is neither true nor false", ErrValue, name)
		}
		*into = text == "true"
		return nil
	}
}

// number returns a function that reads an element's non-negative number.
func number(into *int) func(*scanner, string, bool) error {
	return func(s *scanner, name string, empty bool) error {
		var text string
		if err := textElement(&text)(s, name, empty); err != nil {
			return err
		}
		n, ok := parseCount([]byte(text))
		if !ok || n > 1<<31-1 {
			return fmt.Errorf("%w: %s is not a whole number from 0 to 2147483647", ErrValue, name)
		}
		*into = int(n)
		return nil
	}
}
