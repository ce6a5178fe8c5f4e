package azurestorage

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// RequestIDHeader is the header with the service's id of a request.
const RequestIDHeader = "x-ms-request-id"

// ResponseError is an error response. Its text is the service's message; the SDK's text fills a
// page.
type ResponseError struct {
	Response *azcore.ResponseError
	Text     string
}

func (e *ResponseError) Error() string { return e.Text }
func (e *ResponseError) Unwrap() error { return e.Response }

// Describer summarizes the content of a response for an error.
type Describer func(resp *http.Response, body []byte) string

// ResponseError returns an error response without the request's secrets. If it is not the
// service's error document, describe tells what it is.
func (at Location) ResponseError(resp *azcore.ResponseError, describe Describer, secrets ...string) *ResponseError {
	e := &ResponseError{Response: resp}
	if r := resp.RawResponse; r != nil {
		e.Text = at.message(r, resp.StatusCode, describe, secrets)
		r.Request = withoutSecrets(r.Request)
	}
	return e
}

// message returns the message of the error document, without the full stop and without the
// lines that repeat request id and time. For any other document it returns the status text and a
// description of the content.
func (at Location) message(resp *http.Response, status int, describe Describer, secrets []string) string {
	body, err := runtime.Payload(resp) // the pipeline has read it
	if err == nil {
		if said, _ := Message(body); said != "" {
			return at.Redact(said, secrets...)
		}
	}
	text := http.StatusText(status)
	if host := RedirectHost(resp); host != "" {
		text += " to the host " + at.Redact(host, secrets...)
	}
	if err == nil && len(body) > 0 {
		text = strings.TrimPrefix(text+": "+describe(resp, body), ": ")
	}
	return text
}

// withoutSecrets returns the parts of a request that an error may keep: not the query, which may
// be a signature or a receipt, nor the headers.
func withoutSecrets(r *http.Request) *http.Request {
	if r == nil || r.URL == nil {
		return nil
	}
	return &http.Request{Method: r.Method, URL: &url.URL{Scheme: r.URL.Scheme, Host: r.URL.Host, Path: r.URL.Path}, Header: http.Header{}}
}

// Limits for quoting a response, in bytes.
const (
	maxQuoted  = 80
	maxScanned = 4 << 10 // redacted before the text is cut to maxQuoted
)

// Describe summarizes a response: type, size and first bytes, on one line and redacted.
func (at Location) Describe(resp *http.Response, body []byte, secrets ...string) string {
	if len(body) == 0 {
		return "an empty body"
	}
	quoted := func(text string) string {
		text = at.Redact(text[:min(len(text), maxScanned)], secrets...)
		return strings.ToValidUTF8(text[:min(len(text), maxQuoted)], "")
	}
	kind := quoted(resp.Header.Get("Content-Type"))
	if kind == "" {
		kind = "unknown type"
	}
	return fmt.Sprintf("%d bytes of %s starting with %q", len(body), kind, quoted(string(body)))
}

// RedirectHost returns the host that a response redirects to, or "". The rest of the address may
// repeat our query.
func RedirectHost(resp *http.Response) string {
	to, err := url.Parse(resp.Header.Get("Location"))
	if resp.StatusCode < 300 || resp.StatusCode >= 400 || err != nil || to.Hostname() == "" {
		return ""
	}
	return to.Hostname()
}

// changeIndex is what precedes the message about one change of a group, by "Performing entity group transactions".
var changeIndex = regexp.MustCompile(`^([0-9]{1,3}):`)

// Message returns what the service's error document says, in XML or JSON, and which change of a group it is about, from
// 0 on, or -1 if it does not say so. For any other document the text is "".
func Message(body []byte) (text string, change int) {
	var inXML struct{ Message string }
	if xml.Unmarshal(body, &inXML) == nil {
		return firstSentence(inXML.Message), -1
	}
	var inJSON struct {
		Error struct {
			Message struct{ Value string }
		} `json:"odata.error"`
	}
	if json.Unmarshal(body, &inJSON) != nil {
		return "", -1
	}
	text, change = inJSON.Error.Message.Value, -1
	if m := changeIndex.FindStringSubmatch(text); m != nil {
		text = text[len(m[0]):]
		change, _ = strconv.Atoi(m[1]) // three digits at most
	}
	return firstSentence(text), change
}

// firstSentence returns the first line without its full stop.
func firstSentence(text string) string {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	return strings.TrimSuffix(strings.TrimSpace(text), ".")
}
