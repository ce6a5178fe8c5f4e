// Package envelope converts a body and the head of its envelope to the text of a message, and back.
// It is pure, like package codec, which converts jobs to bodies. DESIGN.md says why it is as it is.
package envelope

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/bodytext"
)

// Feature is something that a reader must know about an envelope, because the body alone would be
// taken for what it is not. A reader names the features that it understands to [Open]; a message
// with any other is [codec.ErrNewer].
type Feature int

// The features.
const (
	// Kinds: the body is of the type that Head.Kind names.
	Kinds Feature = iota + 1

	// Claims: the body is stored where Head.Claim says.
	Claims

	// Groups: the body is a [Group] of as many jobs as Head.Items says.
	Groups
)

// The text of an envelope is
//
//	millrace/1?id=…&at=…&n=…&s=…⏎body
//
// with the parameters in the form of a URL query. It has no quotes, because the service's XML
// needs five bytes for each. Counting an attempt reads and writes only what precedes the line
// feed.
//
// The version is that of the oldest reader that may decode the body. Version 1 is for everyone.
// Version 2 is for readers that understand the features which its parameters name; a reader that
// knows only version 1 leaves it alone.
const (
	prefix          = "millrace/"
	plainVersion    = 1
	featuresVersion = 2
)

func (h *Head) features() bool { return h.Kind != "" || h.Claim != "" || h.Items != 0 }

func (h *Head) version() int {
	if h.features() {
		return featuresVersion
	}
	return plainVersion
}

// checkUnderstood returns a [codec.ErrNewer] if the head has a feature that its reader does not
// understand, or its version says that it has one that this program does not know.
func (h *Head) checkUnderstood(version int, understood []Feature) error {
	switch {
	case version > featuresVersion:
		return fmt.Errorf("%w: version %d, the newest it knows is %d", codec.ErrNewer, version, featuresVersion)
	case version == featuresVersion && !h.features():
		return fmt.Errorf("%w: version %d with nothing that it knows of that version", codec.ErrNewer, version)
	case h.Kind != "" && !slices.Contains(understood, Kinds):
		return fmt.Errorf("%w: it is a job of the kind %.60q, and this reader handles no kinds", codec.ErrNewer, h.Kind)
	case h.Claim != "" && !slices.Contains(understood, Claims):
		return fmt.Errorf("%w: its body is stored elsewhere, and this reader opens no claims", codec.ErrNewer)
	case h.Items != 0 && !slices.Contains(understood, Groups):
		return fmt.Errorf("%w: it is a group of %d jobs, and this reader handles no groups", codec.ErrNewer, h.Items)
	}
	return nil
}

// sealEnvelope returns the text for head and body. A body that XML cannot carry is in Base64.
func sealEnvelope(h Head, body []byte) string {
	var b strings.Builder
	b.Grow(len(prefix) + 96 + len(h.Trace) + len(h.Kind) + len(h.Key) + len(h.Dedupe) + 2*(len(h.Done)+len(h.Failed)+len(h.Started)+len(h.Failure)) + len(body))
	b.WriteString(prefix)
	b.WriteByte('0' + byte(h.version()))
	b.WriteByte('?')
	name := func(key string) {
		if last := b.String()[b.Len()-1]; last != '?' {
			b.WriteByte('&')
		}
		b.WriteString(key)
		b.WriteByte('=')
	}
	add := func(key, value string) {
		if value != "" {
			name(key)
			b.WriteString(url.QueryEscape(value))
		}
	}
	addNumber := func(key string, n int64) {
		var digits [20]byte
		name(key)
		b.Write(strconv.AppendInt(digits[:0], n, 10))
	}
	add("id", h.ID)
	add("ct", h.ContentType)
	if !h.Enqueued.IsZero() {
		addNumber("at", h.Enqueued.UnixMilli())
	}
	addCount := func(key string, n int64) {
		if n != 0 {
			addNumber(key, n)
		}
	}
	addCount("n", int64(h.Attempts))
	addCount("s", h.Settled)
	addCount("st", int64(h.Starts))
	add("fp", h.Fingerprint)
	add("px", h.Poison)
	add("pq", h.Moved)
	add("tp", h.Trace)
	add("ts", h.TraceState)
	add("kd", h.Kind)
	add("ky", h.Key)
	add("dk", h.Dedupe)
	add("cl", h.Claim)
	addCount("gr", int64(h.Items))
	add("gd", base64.RawURLEncoding.EncodeToString([]byte(h.Done)))
	add("gf", base64.RawURLEncoding.EncodeToString([]byte(h.Failed)))
	add("gs", base64.RawURLEncoding.EncodeToString([]byte(h.Started)))
	add("ge", h.Failure)
	isBase64 := h.base64 || !bodytext.IsXMLText(body)
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

// openEnvelope parses what sealEnvelope returns, for a reader that understands these features. With
// a [codec.ErrNewer] it returns the head as far as it is known, and no body.
func openEnvelope(text string, understood []Feature) (Head, []byte, error) {
	line, rest, found := strings.Cut(text[len(prefix):], "\n")
	number, query, hasQuery := strings.Cut(line, "?")
	version, err := strconv.Atoi(number)
	if err != nil || !hasQuery || version < plainVersion {
		return Head{}, nil, fmt.Errorf("open an envelope: its first line is broken: %.60q", line)
	}
	if version > featuresVersion { // its parameters may mean something else
		return Head{}, nil, fmt.Errorf("open an envelope: %w", (&Head{}).checkUnderstood(version, understood))
	}
	head, isBase64, err := parseHead(query)
	if err == nil {
		err = head.checkUnderstood(version, understood)
	}
	if err == nil && !found {
		err = errors.New("its body is missing")
	}
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
	head.base64 = bodytext.IsXMLText(body)
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
			h.Attempts, err = parseCount[int](key, value, 31)
		case "s":
			h.Settled, err = parseCount[int64](key, value, 63)
		case "st":
			h.Starts, err = parseCount[int](key, value, 31)
		case "fp":
			h.Fingerprint = value
		case "px":
			h.Poison = value
		case "pq":
			h.Moved = value
		case "tp":
			h.Trace = value
		case "ts":
			h.TraceState = value
		case "kd":
			h.Kind = value
		case "ky":
			h.Key = value
		case "dk":
			h.Dedupe = value
		case "cl":
			h.Claim = value
		case "gr":
			h.Items, err = parseCount[int](key, value, 31)
		case "gd":
			if h.Done, err = parseItemSet(value); err != nil {
				return h, false, fmt.Errorf("parameter %q: %w", key, err)
			}
		case "ge":
			h.Failure = value
		case "gf":
			if h.Failed, err = parseItemSet(value); err != nil {
				return h, false, fmt.Errorf("parameter %q: %w", key, err)
			}
		case "gs":
			if h.Started, err = parseItemSet(value); err != nil {
				return h, false, fmt.Errorf("parameter %q: %w", key, err)
			}
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
		if err != nil {
			return h, false, err
		}
	}
	return h, isBase64, nil
}

func parseCount[T int | int64](key, value string, bits int) (T, error) {
	n, err := strconv.ParseUint(value, 10, bits)
	if err != nil {
		return 0, fmt.Errorf("parameter %q is no count: %w", key, err)
	}
	return T(n), nil
}
