package codec

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// recognize returns the body of a text without an envelope, and how the text carries it, as [Auto]
// reads it.
func recognize(text string) ([]byte, Format) {
	body := []byte(text)
	// A text that begins like this is not Base64, so it is the body, valid or not. This saves
	// every JSON message a second parse.
	if beginsWith(text, `{["-<`) || json.Valid(withoutMark(body)) {
		return body, Plain
	}
	if inner, err := decodeBase64(text); err == nil && (json.Valid(withoutMark(inner)) || isXML(inner)) {
		return inner, Base64
	}
	return body, Plain
}

// beginsWith reports whether the first character of text, after a byte order mark and white
// space, is one of these.
func beginsWith(text, characters string) bool {
	text = strings.TrimLeft(strings.TrimPrefix(text, string(byteOrderMark)), jsonSpace)
	return text != "" && strings.IndexByte(characters, text[0]) >= 0
}

// isXML reports whether the body is a well-formed XML document.
func isXML(body []byte) bool { return beginsWith(string(body), "<") && checkXML(body) == nil }

// decodeBase64 decodes standard Base64, with white space around it and line ends in it.
func decodeBase64(text string) ([]byte, error) {
	return base64.StdEncoding.DecodeString(strings.TrimSpace(text))
}

// Explain adds to err, with which the text of a message could not be opened or its body not be
// decoded, how the text was read: with [Auto] the forms that were tried and why it is in none of
// them; with another format, whether Auto reads it. The result wraps err. An envelope needs no
// explanation, nor does an [ErrNewer]: then it is err.
func Explain(text string, f Format, err error) error {
	if err == nil || errors.Is(err, ErrNewer) || strings.HasPrefix(text, prefix) {
		return err
	}
	body, recognized := recognize(text)
	form := formOf(body)
	if form != "" && recognized == Base64 {
		form = "Base64 of " + form
	}
	switch {
	case f != Auto && form != "" && f != recognized:
		return fmt.Errorf("%w; Format is %v, but the text is %s: Auto reads that", err, f, form)
	case f != Auto:
		return fmt.Errorf("%w; the text was read as %v, which is the Format that is set", err, f)
	case form != "":
		return fmt.Errorf("%w; the text has no envelope and is %s", err, form)
	}
	return fmt.Errorf("%w; the text was tried as an envelope (it does not begin with %q), as JSON (%w), and as Base64 (%w)",
		err, prefix, jsonError(body), base64Error(text))
}

// formOf says what a body is, or "" if it is neither JSON nor XML.
func formOf(body []byte) string {
	body = withoutMark(body)
	switch {
	case json.Valid(body):
		var text string
		if json.Unmarshal(body, &text) == nil && beginsWith(text, `{[`) && json.Valid([]byte(text)) {
			return "a JSON string that holds JSON: its sender encoded it twice"
		}
		return "JSON"
	case isXML(body):
		return "XML"
	}
	return ""
}

func jsonError(body []byte) error {
	if len(body) == 0 {
		return errors.New("it is empty")
	}
	var value json.RawMessage
	err := json.Unmarshal(withoutMark(body), &value)
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		return fmt.Errorf("%w, at byte %d", err, syntax.Offset)
	}
	return err
}

// base64Error returns why a text is not Base64 of JSON or XML.
func base64Error(text string) error {
	body, err := decodeBase64(text)
	switch {
	case err != nil:
		return err
	case len(body) == 0:
		return errors.New("it is empty")
	case isUTF16(body):
		return errors.New("it decodes to what looks like UTF-16, not UTF-8")
	case beginsWith(string(body), "<"):
		return fmt.Errorf("it decodes to no XML: %w", checkXML(body))
	}
	return fmt.Errorf("it decodes to no JSON: %w", jsonError(body))
}

// isUTF16 reports whether the body looks like UTF-16: it has its byte order mark, or begins with
// an ASCII character in two bytes.
func isUTF16(body []byte) bool {
	if len(body) < 2 || len(body)%2 != 0 {
		return false
	}
	a, b := body[0], body[1]
	return a == 0xFF && b == 0xFE || a == 0xFE && b == 0xFF || (a == 0) != (b == 0)
}
