package azurestorage

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// secretParameter matches a secret parameter of a URL or a connection string.
var secretParameter = regexp.MustCompile(`(?i)\b(sig|popreceipt|accountkey|sharedaccesssignature)=[^&;\s"'<>]*`)

// authorizationHeader matches the credentials of an Authorization header.
var authorizationHeader = regexp.MustCompile(`(?i)\b(SharedKey|SharedKeyLite|Bearer)\s+[^\s"'<>]+`)

// Redact returns the text on one line without secrets: those of the location, other given ones
// such as receipts, and anything that looks like one.
func (at Location) Redact(text string, others ...string) string {
	for _, s := range at.secrets {
		text = strings.ReplaceAll(text, s, "REDACTED")
	}
	for _, s := range others {
		if s != "" {
			text = strings.ReplaceAll(strings.ReplaceAll(text, s, "REDACTED"), url.QueryEscape(s), "REDACTED")
		}
	}
	text = authorizationHeader.ReplaceAllString(secretParameter.ReplaceAllString(text, "$1=REDACTED"), "$1 REDACTED")
	return strings.Join(strings.Fields(text), " ")
}

// RedactError returns err with a redacted text. The text of a [*url.Error] is dropped because it
// contains the whole query.
func (at Location) RedactError(err error, others ...string) error {
	if outer := (*url.Error)(nil); errors.As(err, &outer) {
		err = outer.Err
	}
	return &redactedError{at.Redact(err.Error(), others...), err}
}

// redactedError is an error with a redacted text. Is and As reach the error underneath; Unwrap
// does not, so that nobody prints it.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string        { return e.text }
func (e *redactedError) Is(target error) bool { return errors.Is(e.err, target) }
func (e *redactedError) As(target any) bool   { return errors.As(e.err, target) }
