package codec

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// Format is how a head and a body become the text of a message.
type Format int

// The formats.
const (
	// Auto recognises all formats, in this order: an [Envelope]; valid JSON is the body; Base64
	// of valid JSON or of an XML document is decoded; anything else is the body as it is, for
	// which [Explain] says what was tried. Written, it means Envelope. It is the zero value.
	Auto Format = iota

	// Envelope is a line with the head and then the body. It is the only format that counts
	// attempts apart from deliveries.
	Envelope

	// Plain is the body itself, which must be valid XML text. It has no head.
	Plain

	// Base64 is the body in standard Base64, for consumers that expect it. It is a third larger
	// and has no head.
	Base64
)

// String returns the name of the format.
func (f Format) String() string {
	switch f {
	case Auto:
		return "auto"
	case Envelope:
		return "envelope"
	case Plain:
		return "plain"
	case Base64:
		return "base64"
	}
	return fmt.Sprintf("Format(%d)", int(f))
}

// MarshalText returns the name of the format, for JSON, flags and logs. An unknown format is an
// error.
func (f Format) MarshalText() ([]byte, error) {
	if err := f.Check(); err != nil {
		return nil, err
	}
	return []byte(f.String()), nil
}

// UnmarshalText parses what [Format.MarshalText] returns.
func (f *Format) UnmarshalText(text []byte) error {
	for one := Auto; one.Check() == nil; one++ {
		if one.String() == string(text) {
			*f = one
			return nil
		}
	}
	return fmt.Errorf("codec: unknown format %q", text)
}

// Check returns an error for an unknown format.
func (f Format) Check() error {
	if f < Auto || f > Base64 {
		return fmt.Errorf("codec: unknown format %v", f)
	}
	return nil
}

// HasHead reports whether the format, when written, carries a [Head].
func (f Format) HasHead() bool { return f == Auto || f == Envelope }

// Seal returns the text that carries head and body. Formats without a head leave it out. An
// unknown format is an error. Seal does not check whether a Plain body is XML text; the queue
// does before it sends (queue.CheckText).
func Seal(h Head, body []byte, f Format) (string, error) {
	switch f {
	case Auto, Envelope:
		return sealEnvelope(h, body), nil
	case Plain:
		return string(body), nil
	case Base64:
		return base64.StdEncoding.EncodeToString(body), nil
	}
	return "", fmt.Errorf("seal a body: unknown format %v", f)
}

// OpenAdopted is [Open] for a queue on which messages are put into envelopes when they are
// given back: an envelope is opened as one whatever the format, and anything else by the
// format. A text that begins like an envelope but is not a valid one is not treated as an
// envelope, unless it has a newer version.
func OpenAdopted(text string, f Format, understood ...Feature) (Head, []byte, Format, error) {
	if f == Auto || f == Envelope || !strings.HasPrefix(text, prefix) {
		return Open(text, f, understood...)
	}
	h, body, err := openEnvelope(text, understood)
	if err != nil && !errors.Is(err, ErrNewer) {
		return Open(text, f, understood...)
	}
	return h, body, Envelope, err
}

// Open returns the head and the body that text carries, and its format, which is never Auto. A
// message without an envelope has a zero head. An unreadable text is an error; [ErrNewer] means
// that a newer program can read it, or a reader that understands another [Feature] than those
// given: then the head is returned without the body.
func Open(text string, f Format, understood ...Feature) (Head, []byte, Format, error) {
	switch f {
	case Plain:
		return Head{}, []byte(text), Plain, nil
	case Base64:
		body, err := decodeBase64(text)
		if err != nil {
			return Head{}, nil, Base64, fmt.Errorf("open a message as Base64: %w", err)
		}
		return Head{}, body, Base64, nil
	case Envelope:
		if !strings.HasPrefix(text, prefix) {
			return Head{}, nil, Envelope, fmt.Errorf("open a message: it has no envelope: %.20q", text)
		}
		h, body, err := openEnvelope(text, understood)
		return h, body, Envelope, err
	case Auto:
		if strings.HasPrefix(text, prefix) {
			h, body, err := openEnvelope(text, understood)
			return h, body, Envelope, err
		}
		body, format := recognize(text)
		return Head{}, body, format, nil
	}
	return Head{}, nil, f, fmt.Errorf("open a message: unknown format %v", f)
}
