package azurequeue

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/millrace/millrace/queue"
)

// A proxy or a captive portal may respond in place of the service. Its login page has status
// 200, and an XML decoder would take it for an empty message list.

// foreignHint says what to do about a response that is not the service's.
const foreignHint = "this is not a response of a queue service: check the address, and look for a proxy or a login page in between"

// unusableResponseError is a response with a success status and unexpected content. The outcome of the
// request is unknown.
type unusableResponseError struct {
	status    int
	requestID string
	resp      *http.Response // to describe the content; nil if the service sent it
	body      []byte
	why       string // what the service's response lacks; "" if another server sent it
}

func (u *unusableResponseError) Error() string { return "unusable response: " + u.why }

// foreignResponse is a response that another server sent in place of the service.
func foreignResponse(resp *http.Response, body []byte) *unusableResponseError {
	return &unusableResponseError{status: resp.StatusCode, requestID: resp.Header.Get(requestIDHeader), resp: resp, body: body}
}

// incompleteResponse is a response of the service that lacks a required part.
func incompleteResponse(status int, requestID *string, lacks string) *unusableResponseError {
	return &unusableResponseError{status: status, requestID: value(requestID), why: "the response has no " + lacks}
}

const requestIDHeader = "x-ms-request-id"

func (a *account) translateUnusableResponse(u *unusableResponseError, receipt queue.Receipt) *queue.Error {
	e := &queue.Error{Kind: queue.ErrOutcomeUnknown, Status: u.status, RequestID: a.redact(u.requestID, string(receipt)), Detail: u.why}
	if u.why == "" {
		e.Detail, e.Hint = "the response is "+a.describe(u.resp, u.body, receipt), foreignHint
	}
	return e
}

// Limits for quoting a response, in bytes.
const (
	maxQuoted  = 80
	maxScanned = 4 << 10 // redacted before the text is cut to maxQuoted
)

// describe summarizes a response for an error: type, size and first bytes, on one line and
// redacted. A message list contains receipts and is never quoted.
func (a *account) describe(resp *http.Response, body []byte, receipt queue.Receipt) string {
	if len(body) == 0 {
		return "an empty body"
	}
	if bytes.Contains(body, []byte(listName)) {
		return fmt.Sprintf("a message list where none is expected, %d bytes", len(body))
	}
	quoted := func(text string) string {
		text = a.redact(text[:min(len(text), maxScanned)], string(receipt))
		return strings.ToValidUTF8(text[:min(len(text), maxQuoted)], "")
	}
	kind := quoted(resp.Header.Get("Content-Type"))
	if kind == "" {
		kind = "unknown type"
	}
	return fmt.Sprintf("%d bytes of %s starting with %q", len(body), kind, quoted(string(body)))
}

// redirectHost returns the host that a response redirects to, or "". The rest of the address may
// repeat our query.
func redirectHost(resp *http.Response) string {
	to, err := url.Parse(resp.Header.Get("Location"))
	if resp.StatusCode < 300 || resp.StatusCode >= 400 || err != nil || to.Hostname() == "" {
		return ""
	}
	return to.Hostname()
}

// listName is the root element of every message list.
const listName = "QueueMessagesList"

// Reasons why a document is not a message list.
var (
	errNotAList        = errors.New("not a message list")
	errTrailingContent = errors.New("unexpected content after the message list")
)

// checkList refuses a document that is not exactly one message list. It does not check the list's
// content.
func checkList(document []byte) error {
	d := xml.NewDecoder(bytes.NewReader(document))
	depth, known := 0, false
	for {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF) && known:
			return nil
		case err != nil && known:
			return fmt.Errorf("message list of %d bytes is truncated or malformed: %w", len(document), err)
		case err != nil:
			return errNotAList
		}
		switch token := token.(type) {
		case xml.StartElement:
			switch {
			case depth == 0 && known:
				return errTrailingContent
			case depth == 0 && token.Name.Local != listName:
				return errNotAList
			}
			known = true
			depth++
		case xml.EndElement:
			depth--
		case xml.CharData:
			if depth == 0 && known && len(bytes.TrimSpace(token)) > 0 {
				return errTrailingContent
			}
		}
	}
}
