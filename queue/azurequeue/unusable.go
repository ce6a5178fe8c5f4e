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

// Somebody in between may answer in place of the service: a login page for a network's
// guests is a 200, and to a decoder of XML it is a list without messages.

// foreignHint is what to do about an answer that is not the service's.
const foreignHint = "this is no answer of a queue service: check the address, and for a proxy or a login page in between"

// unusable is an answer that reports success and is not what it must be. What became of the
// request nobody knows.
type unusableResponse struct {
	status    int
	requestID string
	answer    *http.Response // for what came; nil when it was the service's
	body      []byte
	why       string // what is wrong with the service's; "" when it is not
}

func (u *unusableResponse) Error() string { return "the answer is unusable: " + u.why }

// foreignAnswer is an answer of somebody else.
func foreignResponse(answer *http.Response, body []byte) *unusableResponse {
	return &unusableResponse{status: answer.StatusCode, requestID: answer.Header.Get(requestIDHeader), answer: answer, body: body}
}

// incomplete is an answer of the service that lacks what it must have.
func incompleteResponse(status int, requestID *string, lacks string) *unusableResponse {
	return &unusableResponse{status: status, requestID: value(requestID), why: "the answer has no " + lacks}
}

const requestIDHeader = "x-ms-request-id"

func (a *account) translateUnusableResponse(u *unusableResponse, receipt queue.Receipt) *queue.Error {
	e := &queue.Error{Kind: queue.ErrOutcomeUnknown, Status: u.status, RequestID: a.redact(u.requestID, string(receipt)), Detail: u.why}
	if u.why == "" {
		e.Detail, e.Hint = "the answer is "+a.describe(u.answer, u.body, receipt), foreignHint
	}
	return e
}

// Bounds of what is quoted of an answer, in bytes.
const (
	maxQuoted  = 80
	maxScanned = 4 << 10 // at, for secrets, before that is cut
)

// described says what came: its type, its size and how it begins, on one line and without
// secrets. A list of messages, which has receipts, is never quoted.
func (a *account) describe(answer *http.Response, body []byte, receipt queue.Receipt) string {
	if len(body) == 0 {
		return "an empty body"
	}
	if bytes.Contains(body, []byte(listName)) {
		return fmt.Sprintf("a list of messages where none is expected, %d bytes", len(body))
	}
	quoted := func(text string) string {
		text = a.redact(text[:min(len(text), maxScanned)], string(receipt))
		return strings.ToValidUTF8(text[:min(len(text), maxQuoted)], "")
	}
	kind := quoted(answer.Header.Get("Content-Type"))
	if kind == "" {
		kind = "no stated type"
	}
	return fmt.Sprintf("%d bytes of %s, which begin with %q", len(body), kind, quoted(string(body)))
}

// redirection is the host that an answer sends us to, or "". The address may repeat ours.
func redirectHost(answer *http.Response) string {
	to, err := url.Parse(answer.Header.Get("Location"))
	if answer.StatusCode < 300 || answer.StatusCode >= 400 || err != nil || to.Hostname() == "" {
		return ""
	}
	return to.Hostname()
}

// listName is the element that every answer with messages is.
const listName = "QueueMessagesList"

// Why a document is no list of messages.
var (
	errNotAList        = errors.New("no list of messages")
	errTrailingContent = errors.New("the answer is more than a list of messages")
)

// checkList refuses a document that is not one list of messages, to its end. What the list
// has in it is its decoder's business.
func checkList(document []byte) error {
	d := xml.NewDecoder(bytes.NewReader(document))
	depth, known := 0, false
	for {
		token, err := d.Token()
		switch {
		case errors.Is(err, io.EOF) && known:
			return nil
		case err != nil && known:
			return fmt.Errorf("the list of messages of %d bytes is cut off or malformed: %w", len(document), err)
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
