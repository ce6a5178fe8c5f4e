package queuexml

import (
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
// as [AppendTime] writes them. Otherwise the error is [ErrMalformed] or [ErrUnexpected], and the
// messages passed to take must be discarded. Errors contain no text. The caller limits the size.
func ParseMessages(doc []byte, take func(*Message)) error {
	s, err := open(doc)
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
		p.reset()
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

func (p *messageParser) reset() { *p = messageParser{texts: p.texts[:0]} }

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
