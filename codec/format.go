package codec

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
)

// Format says how a body becomes the text of a message.
type Format int

// The formats.
const (
	// Auto reads [Plain] and [Base64] alike, in this order: valid JSON is the
	// body; Base64 of valid JSON is decoded; anything else is the body as it
	// stands. As a format to write it means Plain. It is the zero value.
	Auto Format = iota

	// Plain is the body itself, which must be text that XML can carry.
	Plain

	// Base64 is the body in standard Base64, for binary bodies and for
	// consumers that expect it. It takes a third more room.
	Base64
)

// String names the format.
func (f Format) String() string {
	switch f {
	case Auto:
		return "auto"
	case Plain:
		return "plain"
	case Base64:
		return "base64"
	}
	return fmt.Sprintf("Format(%d)", int(f))
}

// Seal returns the text that carries body. An unknown format is an error; a
// body that is no XML text is not noticed here but by the queue, before it
// sends (queue.CheckText).
func Seal(body []byte, f Format) (string, error) {
	switch f {
	case Auto, Plain:
		return string(body), nil
	case Base64:
		return base64.StdEncoding.EncodeToString(body), nil
	}
	return "", fmt.Errorf("seal a body: unknown format %v", f)
}

// Open returns the body that text carries and the format it was in: never Auto.
// Only with [Base64] can a text be unreadable.
func Open(text string, f Format) ([]byte, Format, error) {
	switch f {
	case Plain:
		return []byte(text), Plain, nil
	case Base64:
		body, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
		if err != nil {
			return nil, Base64, fmt.Errorf("open a message as Base64: %w", err)
		}
		return body, Base64, nil
	case Auto:
		body := []byte(text)
		if json.Valid(body) {
			return body, Plain, nil
		}
		if inner, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text)); err == nil && json.Valid(inner) {
			return inner, Base64, nil
		}
		return body, Plain, nil
	}
	return nil, f, fmt.Errorf("open a message: unknown format %v", f)
}
