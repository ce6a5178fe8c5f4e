package index

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Credits describe a video and its makers. They come from visitors: [Credits.Check] states their limits.
type Credits struct {
	Title     string   `json:"title"`
	Actors    []string `json:"actors,omitempty"`
	Directors []string `json:"directors,omitempty"`
	Keywords  []string `json:"keywords,omitempty"`
}

// ErrCredits means that credits are invalid or missing.
var ErrCredits = errors.New("invalid credits")

// Limits of credits. The last one leaves room for other metadata of the upload: see [Credits.Metadata].
const (
	maxText    = 200  // of a title or name, in characters
	maxTerms   = 200  // of a video
	maxEncoded = 7000 // in bytes
)

// Check fails with [ErrCredits] for credits that no video can have. Titles and names are text of up to 200
// characters, without control characters, and not blank. All of them have up to 200 different words, and up to 7,000 bytes as
// [Credits.Metadata] writes them.
func (c Credits) Check() error {
	_, err := c.encode()
	return err
}

// encode returns the credits as JSON in ASCII, or the reason why they are invalid.
func (c Credits) encode() (string, error) {
	for _, f := range fields {
		for _, text := range f.of(c) {
			if err := checkText(text); err != nil {
				return "", fmt.Errorf("%w: a %s %w", ErrCredits, f.name, err)
			}
		}
	}
	if n := len(c.terms()); n > maxTerms {
		return "", fmt.Errorf("%w: they have %d different words, and may have %d", ErrCredits, n, maxTerms)
	}
	plain, err := json.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrCredits, err)
	}
	encoded := escape(string(plain))
	if len(encoded) > maxEncoded {
		return "", fmt.Errorf("%w: they have %d bytes, and may have %d", ErrCredits, len(encoded), maxEncoded)
	}
	return encoded, nil
}

func checkText(text string) error {
	switch {
	case !utf8.ValidString(text):
		return errors.New("is not UTF-8")
	case strings.TrimSpace(text) == "":
		return errors.New("is blank")
	case utf8.RuneCountInString(text) > maxText:
		return fmt.Errorf("has %d characters, and may have %d", utf8.RuneCountInString(text), maxText)
	case strings.ContainsFunc(text, unicode.IsControl):
		return fmt.Errorf("has control characters: %.100q", text)
	}
	return nil
}

// equal reports whether two credits are the same.
func (c Credits) equal(other Credits) bool {
	return c.Title == other.Title && slices.Equal(c.Actors, other.Actors) && slices.Equal(c.Directors, other.Directors) && slices.Equal(c.Keywords, other.Keywords)
}

// escape writes JSON in ASCII: every other character is in a string, where it may be escaped.
func escape(text string) string {
	var b strings.Builder
	for _, r := range text {
		if r <= '~' {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// metadataName is the name of credits among the metadata of a blob.
const metadataName = "credits"

// Metadata returns the credits as metadata of a blob, which are ASCII. The error is [ErrCredits].
func (c Credits) Metadata() (map[string]string, error) {
	encoded, err := c.encode()
	if err != nil {
		return nil, err
	}
	return map[string]string{metadataName: encoded}, nil
}

// FromMetadata returns the credits in the metadata of a blob, which anybody may have written. The error is [ErrCredits].
func FromMetadata(metadata map[string]string) (Credits, error) {
	encoded, found := metadata[metadataName]
	if !found {
		return Credits{}, fmt.Errorf("%w: there are none", ErrCredits)
	}
	return decode(encoded)
}

// decode reads the output of encode, which anyone may have changed.
func decode(encoded string) (c Credits, err error) {
	if len(encoded) > maxEncoded {
		return Credits{}, fmt.Errorf("%w: they have %d bytes, and may have %d", ErrCredits, len(encoded), maxEncoded)
	}
	if err := json.Unmarshal([]byte(encoded), &c); err != nil {
		return Credits{}, fmt.Errorf("%w: %w", ErrCredits, err)
	}
	return c, c.Check()
}
