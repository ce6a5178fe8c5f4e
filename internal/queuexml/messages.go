package queuexml

import (
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"time"
)

// Prolog begins every document of the service.
const Prolog = `<?xml version="1.0" encoding="utf-8"?>`

// Message is an element of a message list. The operation determines which fields are written.
type Message struct {
	ID           string
	Inserted     time.Time
	Expires      time.Time
	Receipt      string
	NextVisible  time.Time
	DequeueCount int64
	Text         string
}

// Part selects the fields of a message in the response to an operation.
type Part int

// The parts.
const (
	Put  Part = iota // id, times and receipt
	Get              // everything
	Peek             // no receipt and no next visible time
)

// AppendMessages appends a QueueMessagesList document, the response to a put, get or peek.
func AppendMessages(dst []byte, part Part, messages iter.Seq[Message]) []byte {
	dst = append(dst, Prolog+"<QueueMessagesList>"...)
	for m := range messages {
		dst = appendMessage(dst, part, &m)
	}
	return append(dst, "</QueueMessagesList>"...)
}

func appendMessage(dst []byte, part Part, m *Message) []byte {
	dst = append(dst, "<QueueMessage><MessageId>"...)
	dst = AppendText(dst, m.ID)
	dst = append(dst, "</MessageId><InsertionTime>"...)
	dst = AppendTime(dst, m.Inserted)
	dst = append(dst, "</InsertionTime><ExpirationTime>"...)
	dst = AppendTime(dst, m.Expires)
	dst = append(dst, "</ExpirationTime>"...)
	if part != Peek {
		dst = append(dst, "<PopReceipt>"...)
		dst = AppendText(dst, m.Receipt)
		dst = append(dst, "</PopReceipt><TimeNextVisible>"...)
		dst = AppendTime(dst, m.NextVisible)
		dst = append(dst, "</TimeNextVisible>"...)
	}
	if part != Put {
		dst = append(dst, "<DequeueCount>"...)
		dst = strconv.AppendInt(dst, m.DequeueCount, 10)
		dst = append(dst, "</DequeueCount><MessageText>"...)
		dst = AppendText(dst, m.Text)
		dst = append(dst, "</MessageText>"...)
	}
	return append(dst, "</QueueMessage>"...)
}

// AppendTime appends t as the service writes it in XML and headers: an RFC 1123 date in GMT,
// truncated to seconds.
//
// Every message has three times, and Time.AppendFormat would take several times as long.
func AppendTime(dst []byte, t time.Time) []byte {
	t = t.UTC()
	year, month, day := t.Date()
	if year < 0 || year > 9999 {
		return t.AppendFormat(dst, http.TimeFormat)
	}
	hour, minute, second := t.Clock()
	two := func(n int) []byte { return append(dst, byte('0'+n/10), byte('0'+n%10)) }
	dst = append(dst, t.Weekday().String()[:3]...)
	dst = append(dst, ", "...)
	dst = two(day)
	dst = append(dst, ' ')
	dst = append(dst, month.String()[:3]...)
	dst = append(dst, ' ')
	dst = two(year / 100)
	dst = two(year % 100)
	dst = append(dst, ' ')
	dst = two(hour)
	dst = append(dst, ':')
	dst = two(minute)
	dst = append(dst, ':')
	dst = two(second)
	return append(dst, " GMT"...)
}

// ParseBody parses the body of a put or an update, a QueueMessage with a MessageText, and returns
// the text. The error is [ErrMalformed] or [ErrUnexpected] and never contains the text. The
// caller limits the size.
func ParseBody(doc []byte) (string, error) {
	s, err := open(doc)
	if err != nil {
		return "", err
	}
	if empty, err := s.expect("QueueMessage"); err != nil {
		return "", err
	} else if empty {
		return "", fmt.Errorf("%w: QueueMessage has no MessageText", ErrUnexpected)
	}
	if err := s.misc(); err != nil {
		return "", err
	}
	if s.has("</") {
		return "", fmt.Errorf("%w: QueueMessage has no MessageText", ErrUnexpected)
	}
	empty, err := s.expect("MessageText")
	if err != nil {
		return "", err
	}
	var text string
	if !empty {
		if text, err = s.text(); err != nil {
			return "", err
		}
		if !s.has("</") {
			return "", fmt.Errorf("%w: MessageText contains an element; escape the text", ErrUnexpected)
		}
		if err := s.end("MessageText"); err != nil {
			return "", err
		}
	}
	if err := s.misc(); err != nil {
		return "", err
	}
	if s.has("<") && !s.has("</") {
		return "", fmt.Errorf("%w: QueueMessage contains more than a MessageText", ErrUnexpected)
	}
	if err := s.end("QueueMessage"); err != nil {
		return "", err
	}
	if err := s.misc(); err != nil {
		return "", err
	}
	if s.pos != len(s.doc) {
		return "", s.malformed(s.pos, "unexpected content after the document")
	}
	return text, nil
}

// expect reads the start tag of an element with this name.
func (s *scanner) expect(name string) (empty bool, err error) {
	at := s.pos
	found, empty, err := s.start()
	if err != nil {
		return false, err
	}
	if string(found) != name {
		return false, fmt.Errorf("%w: element at byte %d is not %s", ErrUnexpected, at, name)
	}
	return empty, nil
}

// Detail is an additional element of an error document, such as QueryParameterName. The name is
// not escaped.
type Detail struct{ Name, Value string }

// AppendError appends an error document (Status and error codes).
func AppendError(dst []byte, code, message string, details []Detail) []byte {
	dst = append(dst, Prolog+"<Error><Code>"...)
	dst = AppendText(dst, code)
	dst = append(dst, "</Code><Message>"...)
	dst = AppendText(dst, message)
	dst = append(dst, "</Message>"...)
	for _, d := range details {
		dst = appendElement(dst, d.Name, d.Value)
	}
	return append(dst, "</Error>"...)
}

// appendElement appends an element with text. The name is not escaped.
func appendElement(dst []byte, name, text string) []byte {
	dst = append(dst, '<')
	dst = append(dst, name...)
	dst = append(dst, '>')
	dst = AppendText(dst, text)
	dst = append(dst, "</"...)
	dst = append(dst, name...)
	return append(dst, '>')
}
