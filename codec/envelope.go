package codec

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Head is the metadata that an envelope carries. The zero value carries none.
type Head struct {
	// ID is the id of the job. It stays the same when its message is moved or sent again,
	// unlike the service's message id. Empty if none was given.
	ID string

	// ContentType is the media type of the body, such as "application/json". Empty if not
	// given.
	ContentType string

	// Enqueued is when the producer sent the job, by its clock, in milliseconds. Zero if not
	// given.
	Enqueued time.Time

	// Attempts is the number of recorded failures.
	Attempts int

	// Settled is the number of deliveries accounted for: all up to the last that was given back
	// with a record of its handler's result, and each later one that was given back before a
	// handler started.
	Settled int64

	// Starts is the number of handler starts recorded since the last recorded settlement or
	// saved progress. The workers of the earlier ones may have died.
	Starts int

	// Poison is why the message is poison, if it is and could not be moved: no handler sees it
	// any more. Empty otherwise.
	Poison string

	// Trace and TraceState are the W3C trace context of the producer. Empty if there is none.
	Trace      string
	TraceState string

	// Dedupe is equal for jobs that are the same job sent twice. Empty if not given.
	Dedupe string

	// Claim is where the body is stored if the message does not carry it. Empty otherwise.
	Claim string

	// base64 reports that the body came in Base64 although XML could carry it as it is. It
	// stays so, because escaped it could be larger.
	base64 bool

	// unknown holds parameters of a later release of the same version, unchanged.
	unknown string
}

// ErrNewer means that an envelope has a version that this program does not know: a newer
// producer is being rolled out. The message is not poison, because another worker can read it.
var ErrNewer = errors.New("envelope of a newer version")

// The text of an envelope is
//
//	millrace/1?id=…&at=…&n=…&s=…⏎body
//
// with the parameters in the form of a URL query. It has no quotes, because the service's XML
// needs five bytes for each. Counting an attempt reads and writes only what precedes the line
// feed.
const (
	prefix         = "millrace/"
	currentVersion = 1
)

// Room is how many bytes a sealed text may still grow, escaped for XML, when attempts and
// starts are recorded in it. A producer leaves them free.
const Room = len(largestRecord) + len(separator)

// largestRecord is everything that is ever recorded, with every count at its maximum and &
// escaped for XML. The first parameter of an envelope has no separator, which makes Room one
// byte larger than needed.
const (
	separator     = "&amp;"
	largestRecord = separator + "n=2147483647" + separator + "s=9223372036854775807" + separator + "st=2147483647" + separator + "px=undecodable"
)

// Room returns how many of the [Room] bytes are left when the text already records h.
func (h Head) Room() int {
	used := 0
	count := func(key string, n int64) {
		if n != 0 {
			used += len(separator+"=") + len(key) + len(strconv.FormatInt(n, 10))
		}
	}
	count("n", int64(h.Attempts))
	count("s", h.Settled)
	count("st", int64(h.Starts))
	if h.Poison != "" {
		used += len(separator+"px=") + len(url.QueryEscape(h.Poison))
	}
	return max(Room-used, 0)
}

// sealEnvelope returns the text for head and body. A body that XML cannot carry is in Base64.
func sealEnvelope(h Head, body []byte) string {
	var b strings.Builder
	b.Grow(len(prefix) + 96 + len(h.Trace) + len(body))
	b.WriteString(prefix + "1?")
	add := func(key, value string) {
		if value == "" {
			return
		}
		if last := b.String()[b.Len()-1]; last != '?' {
			b.WriteByte('&')
		}
		b.WriteString(key)
		b.WriteByte('=')
		b.WriteString(url.QueryEscape(value))
	}
	add("id", h.ID)
	add("ct", h.ContentType)
	if !h.Enqueued.IsZero() {
		add("at", strconv.FormatInt(h.Enqueued.UnixMilli(), 10))
	}
	if h.Attempts != 0 {
		add("n", strconv.Itoa(h.Attempts))
	}
	if h.Settled != 0 {
		add("s", strconv.FormatInt(h.Settled, 10))
	}
	if h.Starts != 0 {
		add("st", strconv.Itoa(h.Starts))
	}
	add("px", h.Poison)
	add("tp", h.Trace)
	add("ts", h.TraceState)
	add("dk", h.Dedupe)
	add("cl", h.Claim)
	isBase64 := h.base64 || !isXMLText(body)
	if isBase64 {
		add("e", "64")
	}
	if h.unknown != "" {
		if last := b.String()[b.Len()-1]; last != '?' {
			b.WriteByte('&')
		}
		b.WriteString(h.unknown)
	}
	b.WriteByte('\n')
	if isBase64 {
		b.WriteString(base64.StdEncoding.EncodeToString(body))
	} else {
		b.Write(body)
	}
	return b.String()
}

// openEnvelope parses what sealEnvelope returns.
func openEnvelope(text string) (Head, []byte, error) {
	line, rest, found := strings.Cut(text[len(prefix):], "\n")
	version, query, hasQuery := strings.Cut(line, "?")
	n, err := strconv.Atoi(version)
	switch {
	case err != nil || !hasQuery || n < 1:
		return Head{}, nil, fmt.Errorf("open an envelope: its first line is broken: %.60q", line)
	case n > currentVersion:
		return Head{}, nil, fmt.Errorf("open an envelope: %w: %d, this program knows %d", ErrNewer, n, currentVersion)
	case !found:
		return Head{}, nil, errors.New("open an envelope: its body is missing")
	}
	head, isBase64, err := parseHead(query)
	if err != nil {
		return head, nil, fmt.Errorf("open an envelope: %w", err)
	}
	if !isBase64 {
		return head, []byte(rest), nil
	}
	body, err := base64.StdEncoding.DecodeString(rest)
	if err != nil {
		return head, nil, fmt.Errorf("open an envelope: its body: %w", err)
	}
	head.base64 = isXMLText(body)
	return head, body, nil
}

// parseHead parses the parameters. Unknown ones are kept, so that they survive when an older
// program records an attempt.
func parseHead(query string) (h Head, isBase64 bool, err error) {
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		if pair == "" {
			continue
		}
		key, value, _ := strings.Cut(pair, "=")
		if strings.ContainsAny(value, "%+") {
			if value, err = url.QueryUnescape(value); err != nil {
				return h, false, fmt.Errorf("parameter %.20q: %w", key, err)
			}
		}
		switch key {
		case "id":
			h.ID = value
		case "ct":
			h.ContentType = value
		case "at":
			ms, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return h, false, fmt.Errorf("parameter %q is no time: %w", key, err)
			}
			h.Enqueued = time.UnixMilli(ms).UTC()
		case "n":
			n, err := strconv.ParseUint(value, 10, 31)
			if err != nil {
				return h, false, fmt.Errorf("parameter %q is no count: %w", key, err)
			}
			h.Attempts = int(n)
		case "s":
			n, err := strconv.ParseUint(value, 10, 63)
			if err != nil {
				return h, false, fmt.Errorf("parameter %q is no count: %w", key, err)
			}
			h.Settled = int64(n)
		case "st":
			n, err := strconv.ParseUint(value, 10, 31)
			if err != nil {
				return h, false, fmt.Errorf("parameter %q is no count: %w", key, err)
			}
			h.Starts = int(n)
		case "px":
			h.Poison = value
		case "tp":
			h.Trace = value
		case "ts":
			h.TraceState = value
		case "dk":
			h.Dedupe = value
		case "cl":
			h.Claim = value
		case "e":
			if value != "64" {
				return h, false, fmt.Errorf("unknown encoding %.20q of the body", value)
			}
			isBase64 = true
		default:
			if h.unknown != "" {
				h.unknown += "&"
			}
			h.unknown += pair
		}
	}
	return h, isBase64, nil
}

// isXMLText reports whether XML 1.0 carries the body unchanged: UTF-8 with only the characters
// that section 2.2 allows.
func isXMLText(body []byte) bool {
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
