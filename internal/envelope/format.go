package envelope

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/millrace/millrace/codec"
)

// CheckFormat returns an error for an unknown format.
func CheckFormat(f codec.Format) error {
	switch f {
	case codec.Auto, codec.Envelope, codec.Plain, codec.Base64:
		return nil
	}
	return fmt.Errorf("codec: unknown format %q", string(f))
}

// HasHead reports whether the format, when written, carries a [Head].
func HasHead(f codec.Format) bool { return f == codec.Auto || f == codec.Envelope }

// Seal returns the text that carries head and body. Formats without a head leave it out. An
// unknown format is an error. Seal does not check whether a Plain body is XML text; the queue
// does before it sends (driver.CheckText).
func Seal(h Head, body []byte, f codec.Format) (string, error) {
	switch f {
	case codec.Auto, codec.Envelope:
		return sealEnvelope(h, body), nil
	case codec.Plain:
		return string(body), nil
	case codec.Base64:
		return base64.StdEncoding.EncodeToString(body), nil
	}
	return "", fmt.Errorf("seal a body: unknown format %q", f)
}

// OpenForeign is [Open] for a queue on which messages are put into envelopes when they are
// given back: an envelope is opened as one whatever the format, and anything else by the
// format. A text that begins like an envelope but is not a valid one is not treated as an
// envelope, unless it has a newer version.
func OpenForeign(text string, f codec.Format, understood ...Feature) (Head, []byte, codec.Format, error) {
	if f == codec.Auto || f == codec.Envelope || !strings.HasPrefix(text, prefix) {
		return Open(text, f, understood...)
	}
	h, body, err := openEnvelope(text, understood)
	if err != nil && !errors.Is(err, codec.ErrNewer) {
		return Open(text, f, understood...)
	}
	return h, body, codec.Envelope, err
}

// Open returns the head and the body that text carries, and its format, which is never Auto. A
// message without an envelope has a zero head. An unreadable text is an error; [codec.ErrNewer]
// means that a newer program can read it, or a reader that understands another [Feature] than those
// given: then the head is returned without the body.
func Open(text string, f codec.Format, understood ...Feature) (Head, []byte, codec.Format, error) {
	switch f {
	case codec.Plain:
		return Head{}, []byte(text), codec.Plain, nil
	case codec.Base64:
		body, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil {
			return Head{}, nil, codec.Base64, fmt.Errorf("open a message as Base64: %w", err)
		}
		return Head{}, body, codec.Base64, nil
	case codec.Envelope:
		if !strings.HasPrefix(text, prefix) {
			return Head{}, nil, codec.Envelope, fmt.Errorf("open a message: it has no envelope: %.20q", text)
		}
		h, body, err := openEnvelope(text, understood)
		return h, body, codec.Envelope, err
	case codec.Auto:
		if strings.HasPrefix(text, prefix) {
			h, body, err := openEnvelope(text, understood)
			return h, body, codec.Envelope, err
		}
		body, format := recognize(text)
		return Head{}, body, format, nil
	}
	return Head{}, nil, f, fmt.Errorf("open a message: unknown format %q", f)
}

// CheckCodec returns what the method Check of the codec returns, if it has one: an error if it
// would lose every job. [codec.JSON] and [codec.XML] would if T is a struct, or a pointer to one,
// that has fields and exports none of them, unless the type encodes or decodes itself.
func CheckCodec(c any) error {
	if own, ok := c.(interface{ Check() error }); ok {
		return own.Check()
	}
	return nil
}

// Verbatim returns the body and the format of a text without an envelope as this codec reads it,
// given those that [codec.Auto] recognised. [codec.Text] and [codec.Bytes] read any text, so a word
// such as "MTIz", which is also the Base64 of 123, stays as it is, unless the Base64 is that of a
// JSON object, an array, or XML. For other codecs nothing changes.
func Verbatim(c any, text string, body []byte, recognized codec.Format) ([]byte, codec.Format) {
	if _, reads := c.(interface{ ReadsAnyText() }); reads && recognized == codec.Base64 && !beginsWith(string(body), "{[<") {
		return []byte(text), codec.Plain
	}
	return body, recognized
}

// Errors with which the body of a claim, see [Claims], is not opened, whatever stores the bodies.
// With any other error it cannot be read for now.
var (
	// ErrClaimGone means that the body is not where the claim says, and will not come back by
	// itself.
	ErrClaimGone = errors.New("the body that the message refers to is gone")

	// ErrClaimSettled means that a message with this claim was deleted after its job had
	// succeeded. Another message with the claim is a duplicate of it.
	ErrClaimSettled = errors.New("the job was done by another message with the same body")

	// ErrClaimInvalid means that the claim is broken, or that the body is not what it says.
	ErrClaimInvalid = errors.New("invalid claim")
)
