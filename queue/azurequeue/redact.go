package azurequeue

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// secret matches a parameter that opens something, in a URL or in a connection
// string.
var secretParameter = regexp.MustCompile(`(?i)\b(sig|popreceipt|accountkey|sharedaccesssignature)=[^&;\s"'<>]*`)

// proof matches what proves who we are, as it stands in a header.
var authorizationHeader = regexp.MustCompile(`(?i)\b(SharedKey|SharedKeyLite|Bearer)\s+[^\s"'<>]+`)

// clean returns text on one line and without anything secret: neither what the
// location holds, nor the receipts given here, nor what looks like one.
func (a *account) redact(text string, receipts ...string) string {
	for _, s := range a.location.secrets {
		text = strings.ReplaceAll(text, s, "REDACTED")
	}
	for _, s := range receipts {
		if s != "" {
			text = strings.ReplaceAll(strings.ReplaceAll(text, s, "REDACTED"), url.QueryEscape(s), "REDACTED")
		}
	}
	text = authorizationHeader.ReplaceAllString(secretParameter.ReplaceAllString(text, "$1=REDACTED"), "$1 REDACTED")
	return strings.Join(strings.Fields(text), " ")
}

// scrub returns err with a clean text. An [*url.Error] is left out: its text is
// the address with the whole query.
func (a *account) redactError(err error, receipts ...string) error {
	if outer := (*url.Error)(nil); errors.As(err, &outer) {
		err = outer.Err
	}
	return &redactedError{a.redact(err.Error(), receipts...), err}
}

// scrubbed is an error whose text is clean. What is underneath can be asked
// for, but is not handed out for printing.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string        { return e.text }
func (e *redactedError) Is(target error) bool { return errors.Is(e.err, target) }
func (e *redactedError) As(target any) bool   { return errors.As(e.err, target) }
