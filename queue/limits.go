package queue

import (
	"time"
)

// The limits of the service, from the Queue service REST API.
const (
	// MaxBatch is the largest number of messages of one dequeue or peek.
	MaxBatch = 32

	// MaxText is the largest message text in bytes of UTF-8, as sent: 64 KiB. Base64 leaves 48
	// KiB of it.
	MaxText = 64 << 10

	// MaxRequest is the largest body of an enqueue or update request, in bytes. The text in it is
	// escaped for XML, which turns a quote into five bytes. The limit is not documented; the
	// service reports it in 413 RequestBodyTooLarge.
	MaxRequest = 131_584

	// MaxMetadata is the largest total size of a queue's metadata names and values, in bytes.
	MaxMetadata = 8 << 10

	// MinVisibility is the shortest visibility timeout of a dequeue.
	MinVisibility = time.Second

	// MaxVisibility is the longest visibility timeout and delay: seven days.
	MaxVisibility = 7 * 24 * time.Hour

	// MinTTL is the shortest TTL of a message.
	MinTTL = time.Second

	// Forever as a TTL means that a message never expires. It is -1 as on the wire, and no valid
	// duration.
	Forever time.Duration = -1
)

// Seconds returns d in whole seconds, rounded up, as it is sent.
func Seconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// requestOverhead is the size of a request without its text, as azqueue writes it.
const requestOverhead = len(`<?xml version="1.0" encoding="UTF-8"?>` + "\n" + "<QueueMessage><MessageText></MessageText></QueueMessage>")

// RequestSize returns the size of the request for a text that [CheckText] accepts, in bytes. The
// text is escaped as encoding/xml does it.
func RequestSize(text string) int {
	n := requestOverhead + len(text)
	for i := range len(text) {
		switch text[i] {
		case '"', '\'', '&', '\t', '\n', '\r': // &#34; &#39; &amp; &#x9; &#xA; &#xD;
			n += 4
		case '<', '>': // &lt; &gt;
			n += 3
		}
	}
	return n
}

// Life returns the TTL, or [Forever] if it is 0 or o is nil.
func (o *EnqueueOptions) Life() time.Duration {
	if o == nil || o.TTL == 0 {
		return Forever
	}
	return o.TTL
}
