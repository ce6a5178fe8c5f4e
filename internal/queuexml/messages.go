package queuexml

import (
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
