package driver

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/internal/bodytext"
	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/queue"
)

// CheckName refuses a queue name that the service would refuse. Valid names have 3…63 lower-case
// letters, digits and single hyphens, and neither begin nor end with a hyphen. The error is
// [queue.ErrInvalid].
func CheckName(name string) error {
	if len(name) < 3 || len(name) > 63 {
		return invalid("queue name %q has %d characters: it needs 3 to 63", name, len(name))
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case c == '-' && i > 0 && i < len(name)-1 && name[i-1] != '-':
		case c == '-':
			return invalid("queue name %q: a hyphen must stand between letters or digits, one at a time", name)
		default:
			return invalid("queue name %q: only lower-case letters, digits and single hyphens are allowed", name)
		}
	}
	return nil
}

// CheckText refuses a message text that the service cannot store unchanged: over [queue.MaxText] bytes
// ([queue.ErrTooLarge]), or with characters that XML does not allow ([queue.ErrInvalid]; production Char of
// XML 1.0, section 2.2).
func CheckText(text string) error {
	if len(text) > queue.MaxText {
		return &queue.Error{Kind: queue.ErrTooLarge, Detail: fmt.Sprintf("message text has %d bytes, the limit is %d", len(text), queue.MaxText),
			Hint: tooLargeHint}
	}
	i := bodytext.FirstInvalid(text)
	if i < 0 {
		return nil
	}
	r, n := utf8.DecodeRuneInString(text[i:])
	if r == utf8.RuneError && n == 1 {
		return invalid("message text is not UTF-8 at byte %d: send binary as Base64", i)
	}
	return invalid("message text has the character %U at byte %d, which XML cannot carry: send binary as Base64", r, i)
}

// CheckRequest refuses a text with [queue.ErrTooLarge] if it exceeded [queue.MaxText], or its request
// [MaxRequest], with room more bytes of escaped text. Senders to a queue in which attempts are
// recorded leave room for the record; for others room is 0. CheckRequest does not check
// characters: see [CheckText].
func CheckRequest(text string, room int) error {
	limit := func(most int) string {
		if room == 0 {
			return fmt.Sprint(most)
		}
		return fmt.Sprintf("%d (%d less %d to record attempts)", most-room, most, room)
	}
	if len(text)+room > queue.MaxText {
		return &queue.Error{Kind: queue.ErrTooLarge, Hint: tooLargeHint,
			Detail: fmt.Sprintf("message text has %d bytes, the limit is %s", len(text), limit(queue.MaxText))}
	}
	if requestOverhead+len(text)*mostEscaped+room <= MaxRequest { // most texts are small, and need not be read
		return nil
	}
	if n := RequestSize(text); n+room > MaxRequest {
		return &queue.Error{Kind: queue.ErrTooLarge, Hint: "Base64 text is not escaped and always fits; " + tooLargeHint,
			Detail: fmt.Sprintf("message text of %d bytes is a request of %d with its characters escaped for XML, the limit is %s", len(text), n, limit(MaxRequest))}
	}
	return nil
}

const tooLargeHint = "keep large bodies in a blob and send a reference"

// CheckEnqueue refuses enqueue options that the service would refuse, with [queue.ErrInvalid]. Nil is
// valid.
func CheckEnqueue(o *queue.EnqueueOptions) error {
	if o == nil {
		return nil
	}
	if err := units.Visibility("delay", o.Delay); err != nil {
		return invalid("%v", err)
	}
	if err := units.Visibility("TTL", max(o.TTL, 0)); err != nil {
		return invalid("%v", err)
	}
	if o.Delay < 0 || o.Delay > queue.MaxVisibility {
		return invalid("delay %v is outside 0…%v", o.Delay, queue.MaxVisibility)
	}
	ttl := TTL(o)
	if ttl != queue.Forever && (ttl < MinTTL || Seconds(ttl) > math.MaxInt32) {
		return invalid("TTL %v is outside %v…%d s: use queue.Forever for a message that never expires", o.TTL, MinTTL, math.MaxInt32)
	}
	if ttl != queue.Forever && Seconds(o.Delay) >= Seconds(ttl) {
		return invalid("delay %v is not shorter than the TTL %v: the message would never be seen", o.Delay, ttl)
	}
	return nil
}

// CheckDequeue refuses an invalid batch size or visibility timeout of a dequeue, with
// [queue.ErrInvalid].
func CheckDequeue(n int, visibility time.Duration) error {
	if err := CheckPeek(n); err != nil {
		return err
	}
	if err := units.Visibility("visibility timeout", visibility); err != nil {
		return invalid("%v", err)
	}
	if visibility < MinVisibility || visibility > queue.MaxVisibility {
		return invalid("visibility timeout %v is outside %v…%v", visibility, MinVisibility, queue.MaxVisibility)
	}
	return nil
}

// CheckPeek refuses an invalid batch size, with [queue.ErrInvalid].
func CheckPeek(n int) error {
	if n < 1 || n > queue.MaxBatch {
		return invalid("batch of %d is outside 1…%d", n, queue.MaxBatch)
	}
	return nil
}

// CheckUpdate refuses the arguments of an update that has no lease, an invalid text, or a
// visibility timeout outside 0…[queue.MaxVisibility].
func CheckUpdate(l queue.Lease, text string, visibility time.Duration) error {
	if err := CheckLease(l); err != nil {
		return err
	}
	if err := units.Visibility("visibility timeout", visibility); err != nil {
		return invalid("%v", err)
	}
	if visibility < 0 || visibility > queue.MaxVisibility {
		return invalid("visibility timeout %v is outside 0…%v", visibility, queue.MaxVisibility)
	}
	return CheckText(text)
}

// CheckLease refuses a lease without id or receipt, such as a peeked message's, with
// [queue.ErrInvalid].
func CheckLease(l queue.Lease) error {
	if l.ID == "" || l.Receipt == "" {
		return invalid("message has no lease: a peeked message can be neither updated nor deleted")
	}
	return nil
}

// CheckMetadata refuses metadata that the service would refuse, with [queue.ErrInvalid]. Names must be
// C# identifiers in ASCII that differ in more than case. Values must be empty or printable ASCII
// without surrounding spaces. Names and values have at most [MaxMetadata] bytes together.
func CheckMetadata(metadata map[string]string) error {
	size, seen := 0, make(map[string]bool, len(metadata))
	for name, value := range metadata {
		if !identifier(name) {
			return invalid("metadata name %q must be letters, digits and underscores and not begin with a digit", name)
		}
		lower := strings.ToLower(name)
		if seen[lower] {
			return invalid("metadata name %q is a duplicate: names must differ in more than case", name)
		}
		seen[lower] = true
		if value != strings.TrimSpace(value) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
			return invalid("metadata value of %q must be printable ASCII without surrounding spaces", name)
		}
		size += len(name) + len(value)
	}
	if size > MaxMetadata {
		return invalid("metadata has %d bytes, the limit is %d", size, MaxMetadata)
	}
	return nil
}

func identifier(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_':
		case '0' <= c && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return s != ""
}

func invalid(format string, args ...any) error {
	return &queue.Error{Kind: queue.ErrInvalid, Detail: fmt.Sprintf(format, args...)}
}

// CheckList refuses a limit of a list's page that the service would refuse, with
// [queue.ErrInvalid]. 0 is valid and means [MaxPage].
func CheckList(limit int) error {
	if limit < 0 || limit > MaxPage {
		return invalid("page of %d queues is outside 1…%d", limit, MaxPage)
	}
	return nil
}

// The limits of the service that only queues check, from the Queue service REST API.
const (
	// MaxRequest is the largest body of an enqueue or update request, in bytes. The text in it is
	// escaped for XML, which turns a quote into five bytes. The limit is not documented; the
	// service reports it in 413 RequestBodyTooLarge.
	MaxRequest = 131_584

	// MaxMetadata is the largest total size of a queue's metadata names and values, in bytes.
	MaxMetadata = 8 << 10

	// MinVisibility is the shortest visibility timeout of a dequeue.
	MinVisibility = time.Second

	// MinTTL is the shortest TTL of a message.
	MinTTL = time.Second

	// MaxPage is the largest number of queues in one page of a list.
	MaxPage = 5000
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

// mostEscaped is how many bytes one byte of a text takes at most in its request.
const mostEscaped = len("&#34;")

// RequestSize returns the size of the request for a text that [CheckText] accepts, in bytes. The
// text is escaped as encoding/xml does it.
func RequestSize(text string) int { return requestOverhead + len(text) + bodytext.Escapes(text) }

// TTL returns the TTL of the options, or [queue.Forever] if it is 0 or o is nil.
func TTL(o *queue.EnqueueOptions) time.Duration {
	if o == nil || o.TTL == 0 {
		return queue.Forever
	}
	return o.TTL
}
