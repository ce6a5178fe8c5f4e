package azurestorage

import (
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/internal/serviceerror"
	"github.com/millrace/millrace/internal/units"
)

// RequestIDHeader is the header with the service's id of a request.
const RequestIDHeader = "x-ms-request-id"

// errorCodeHeader is the header with the storage error code, or with whatever a proxy sends there.
const errorCodeHeader = "x-ms-error-code"

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
	resp.ErrorCode = at.Redact(resp.ErrorCode, secrets...)
	if r := resp.RawResponse; r != nil {
		if code := r.Header.Get(errorCodeHeader); code != "" {
			r.Header.Set(errorCodeHeader, at.Redact(code, secrets...))
		}
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
	kind := cmp.Or(quoted(resp.Header.Get("Content-Type")), "unknown type")
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

// Limits are the options that the clients which repeat requests have in common.
type Limits struct {
	TryTimeout  time.Duration // of one request
	RetryFor    time.Duration // how long a request is repeated; negative means that nothing is
	Connections int           // idle ones that are kept

	unreachable time.Duration // how long a request is repeated that cannot be sent; 0 for RetryFor
}

// unreachable is how long a client waits for an emulator that does not listen. It may be starting,
// but usually it was not started.
const unreachable = time.Second

// Check refuses limits that cannot be meant. The error is a [*ParseError].
func (l Limits) Check() error {
	if err := cmp.Or(units.Wait("TryTimeout", l.TryTimeout), units.Wait("RetryFor", l.RetryFor)); err != nil {
		return invalid("", "%v", err)
	}
	switch {
	case l.TryTimeout < 0:
		return invalid("", "TryTimeout %v is negative", l.TryTimeout)
	case l.Connections < 0:
		return invalid("", "Connections %d is negative", l.Connections)
	}
	return nil
}

// WithDefaults returns the limits with 30 s, 2 min and 64 for those that are zero. With
// UseDevelopmentStorage=true, the default for requests that cannot be sent is 1 s. An emulator on
// another machine, such as a container that starts at the same time, has the full 2 min.
func (l Limits) WithDefaults(at Location) Limits {
	l.TryTimeout = cmp.Or(l.TryTimeout, 30*time.Second)
	if l.RetryFor == 0 {
		l.RetryFor = 2 * time.Minute
		if at.development {
			l.unreachable = unreachable
		}
	}
	l.Connections = cmp.Or(l.Connections, 64)
	return l
}

// Repeat calls op while it fails with a transient error, for RetryFor; the key spreads the waits of different callers.
// If the end of ctx ended a wait, the error is op's last, and gaveUp is true: that end is why the call fails.
func (l Limits) Repeat(ctx context.Context, key string, transient func(error) bool, op func(context.Context) error) (gaveUp bool, err error) {
	if l.RetryFor < 0 {
		return false, op(ctx)
	}
	// The end of this context ends the waits, not a try.
	waiting, cancel := context.WithTimeout(ctx, l.RetryFor)
	defer cancel()
	begun := time.Now()
	again := func(err error) bool {
		return transient(err) && (l.unreachable == 0 || !NeverSent(err) || time.Since(begun) < l.unreachable)
	}
	err = retry.Do(waiting, key, again, func(try context.Context) error {
		return op(retry.Repeated(ctx, retry.Repeats(try)))
	})
	return err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)), err
}

// Try returns a context for one request, which ends after the time-out that it returns too.
func (l Limits) Try(ctx context.Context) (try context.Context, timeout time.Duration, cancel context.CancelFunc) {
	timeout = TryTimeout(ctx, l.TryTimeout)
	try, cancel = context.WithTimeoutCause(ctx, timeout, ErrTryTimeout)
	return try, timeout, cancel
}

// Failures says how a client reports what every service has: its kinds of errors, and what its service's storage error
// codes mean.
type Failures struct {
	Unavailable, Unauthorized, Invalid error // the client's kinds of errors

	Known map[string]Meaning // codes that need more than their status says; nil for none
	Role  string             // which role an identity needs, such as "Storage Blob Data Contributor"
	What  string             // what a response should have come from, such as "blob service"
}

// Meaning is what a storage error code means.
type Meaning struct {
	Kind error
	Hint string // what to do about it; "" if there is nothing to say
}

// Failure is a failed request, for the error of a client. Kind is nil if the caller's context ended, and Err is nil if Detail says it
// all. Its texts have no secrets.
type Failure = serviceerror.Failure

// ForeignError is a response with a success status that is not the service's.
type ForeignError struct{ Lacks string }

func (e *ForeignError) Error() string { return "the response has no " + e.Lacks }

// Failure returns what is known of a request that failed with err. ctx is the caller's context, and try the one that
// the request was sent with, which ends after timeout.
func (at Location) Failure(ctx, try context.Context, timeout time.Duration, err error, known Failures) Failure {
	if resp := (*azcore.ResponseError)(nil); errors.As(err, &resp) {
		return at.refused(resp, known)
	}
	if foreign := (*ForeignError)(nil); errors.As(err, &foreign) {
		return Failure{Kind: known.Unavailable, Detail: foreign.Error(), Hint: known.foreignHint()}
	}
	if denied := (*CredentialError)(nil); errors.As(err, &denied) {
		return at.denied(ctx, denied, known)
	}
	if ctx.Err() != nil { // the SDK does not say whether the request was sent
		return Failure{Err: at.RedactError(serviceerror.Ended(ctx)), Detail: "the wait for the response ended"}
	}
	if errors.Is(context.Cause(try), ErrTryTimeout) {
		// Err stays nil: this deadline is not the caller's.
		return Failure{Kind: known.Unavailable, Detail: fmt.Sprintf("no response within %v", timeout)}
	}
	f := Failure{Kind: known.Unavailable, Err: at.RedactError(err)}
	if Unsent(err) {
		f.Hint = at.NetworkHint(err)
	}
	return f
}

func (at Location) refused(resp *azcore.ResponseError, known Failures) Failure {
	err := at.ResponseError(resp, func(resp *http.Response, body []byte) string {
		return at.Describe(resp, body)
	})
	f := Failure{Status: resp.StatusCode, Code: resp.ErrorCode, Err: err}
	f.Hint, f.Kind = known.Classify(resp.StatusCode, resp.ErrorCode)
	if r := resp.RawResponse; r != nil {
		f.RequestID = at.Redact(r.Header.Get(RequestIDHeader))
	}
	return f
}

// denied is for an error of a credential: nothing was sent.
func (at Location) denied(ctx context.Context, denied *CredentialError, known Failures) Failure {
	f := Failure{Kind: known.Unauthorized, Detail: "no token, nothing was sent", Err: at.RedactError(denied), Hint: LoginHint}
	switch {
	case ctx.Err() != nil:
		f.Kind, f.Err, f.Hint = nil, at.RedactError(serviceerror.Ended(ctx)), ""
	case denied.Transient():
		f.Kind, f.Hint = known.Unavailable, ""
	}
	return f
}

// Classify returns the kind of error for a status and a storage error code, and what to do about it. The codes are those
// of "Common REST API error codes", besides the client's own.
func (known Failures) Classify(status int, code string) (hint string, kind error) {
	if k, ok := known.Known[code]; ok {
		return k.Hint, k.Kind
	}
	switch code {
	case "AccountBeingCreated":
		return "wait until the account is there", known.Unavailable
	case "TlsVersionNotPermitted":
		return TLSHint, known.Unavailable
	case "AuthorizationPermissionMismatch", "AuthorizationResourceTypeMismatch", "AuthorizationServiceMismatch", "InsufficientAccountPermissions":
		return `give the identity the role "` + known.Role + `", or the signature the permission it lacks`, known.Unauthorized
	case "AuthorizationProtocolMismatch":
		return "the signature is for https only", known.Unauthorized
	case "AuthenticationFailed":
		return "check the key, whether the signature has expired, and this machine's clock", known.Unauthorized
	}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return "check the credential, and the account's firewall", known.Unauthorized
	case status == http.StatusNotFound && code == "": // a proxy's, or another server's
		return known.foreignHint(), known.Invalid
	case status == http.StatusNotFound:
		return "check the account's name", known.Invalid
	case status == http.StatusProxyAuthRequired:
		return "the proxy asks for a login", known.Unauthorized
	case isTransientStatus(status):
		return "", known.Unavailable
	case status >= http.StatusBadRequest:
		return "", known.Invalid
	default:
		return known.foreignHint(), known.Unavailable
	}
}

func (known Failures) foreignHint() string {
	return "this is not a response of a " + known.What + ": check the address, and look for a proxy or a login page in between"
}
