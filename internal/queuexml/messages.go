package queuexml

import (
	"iter"
	"net/http"
	"strconv"
	"time"
)

// Prolog is what every document of the service begins with.
const Prolog = `<?xml version="1.0" encoding="utf-8"?>`

// Message is one element of a list of messages. Which fields are written
// depends on the operation.
type Message struct {
	ID           string
	Inserted     time.Time
	Expires      time.Time
	Receipt      string
	NextVisible  time.Time
	DequeueCount int64
	Text         string
}

// Part says which fields of a message an operation's response has.
type Part int

// The parts.
const (
	Put  Part = iota // id, times and receipt: the text was the caller's own
	Get              // everything
	Peek             // no receipt and no next visible time
)

// AppendMessages appends the response to a put, get or peek of messages: a
// whole QueueMessagesList document.
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

// AppendTime appends t as the service writes it, in XML and in headers: the
// date of RFC 1123 in GMT, cut to whole seconds.
//
// There are three in every message, so it is written out: by its format it would take
// several times as long.
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
