package azurequeue

import (
	"context"
	"crypto/tls"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/millrace/millrace/queue"
)

// translate turns an error of azqueue into a [*queue.Error] without secrets. ctx is the caller's
// context, try the one with our timeout.
func (a *account) translate(ctx, try context.Context, op string, receipt queue.Receipt, err error) *queue.Error {
	if resp := (*azcore.ResponseError)(nil); errors.As(err, &resp) {
		return a.translateErrorResponse(op, receipt, resp)
	}
	if resp := (*unusableResponseError)(nil); errors.As(err, &resp) {
		return a.translateUnusableResponse(resp, receipt)
	}
	if denied := (*credentialError)(nil); errors.As(err, &denied) {
		return a.translateCredentialError(ctx, denied)
	}
	if ctx.Err() != nil { // the SDK does not say whether the request was sent
		return &queue.Error{Kind: queue.ErrOutcomeUnknown, Err: a.redactError(contextError(ctx), string(receipt)), Detail: "the wait for the response ended"}
	}
	if errors.Is(context.Cause(try), errTryTimeout) {
		// Err stays nil: this deadline is not the caller's.
		return &queue.Error{Kind: queue.ErrOutcomeUnknown, Detail: fmt.Sprintf("no response within %v", a.timeout(ctx))}
	}
	e := &queue.Error{Kind: queue.ErrOutcomeUnknown, Err: a.redactError(err, string(receipt))}
	if unsent(err) {
		e.Kind, e.Hint = queue.ErrUnavailable, a.location.hint
		switch dns := (*net.DNSError)(nil); {
		case errors.As(err, &dns) && dns.IsNotFound:
			e.Hint = "check the account's name, and this machine's name resolution"
		case errors.Is(err, http.ErrSchemeMismatch):
			e.Hint = "the address says https, the server speaks http"
		case e.Hint == "":
			e.Hint = "check the address, the network and the account's firewall"
		}
	}
	return e
}

// unsent reports whether err happened before the first byte of the request was sent: resolving,
// dialing or verifying the server failed.
func unsent(err error) bool {
	var (
		operation   *net.OpError
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
	)
	return errors.As(err, &operation) && (operation.Op == "dial" || operation.Op == "proxyconnect" || operation.Op == "socks connect") ||
		errors.As(err, &name) || errors.As(err, &certificate) || errors.Is(err, http.ErrSchemeMismatch)
}

func (a *account) translateErrorResponse(op string, receipt queue.Receipt, resp *azcore.ResponseError) *queue.Error {
	e := &queue.Error{Status: resp.StatusCode, Code: resp.ErrorCode}
	e.Hint, e.Kind = classify(op, resp.StatusCode, resp.ErrorCode)
	if r := resp.RawResponse; r != nil {
		e.RequestID = a.redact(r.Header.Get(requestIDHeader), string(receipt))
		r.Request = withoutSecrets(r.Request)
	}
	e.Err = &responseError{resp, a.serviceMessage(resp, receipt)}
	return e
}

const tooLargeHint = "Base64 text is not escaped and always fits; keep larger bodies in a blob and send a reference"

// classify returns the kind of error for a status and a storage error code, and what to do about
// it. The codes are those of the Queue service REST API, "Queue service error codes" and "Common
// REST API error codes".
func classify(op string, status int, code string) (hint string, kind error) {
	switch code {
	case "PopReceiptMismatch":
		return "", queue.ErrReceiptMismatch
	case "MessageNotFound":
		return "", queue.ErrMessageGone
	case "QueueNotFound":
		return "create it first", queue.ErrQueueMissing
	case "QueueBeingDeleted":
		return "wait, or use another name", queue.ErrQueueBeingDeleted
	case "QueueAlreadyExists":
		return "", queue.ErrQueueExists
	case "QueueDisabled":
		return "an administrator has disabled the queue", queue.ErrUnauthorized
	case "AccountBeingCreated":
		return "wait until the account is there", queue.ErrUnavailable
	case "ServerBusy":
		return "", queue.ErrThrottled
	case "OperationTimedOut":
		return "", queue.ErrOutcomeUnknown
	case "MessageTooLarge", "RequestBodyTooLarge":
		return tooLargeHint, queue.ErrTooLarge
	case "AuthorizationPermissionMismatch", "AuthorizationResourceTypeMismatch", "AuthorizationServiceMismatch", "InsufficientAccountPermissions":
		return `give the identity the role "Storage Queue Data Contributor", or the signature the permission it lacks`, queue.ErrUnauthorized
	case "AuthorizationProtocolMismatch":
		return "the signature is for https only", queue.ErrUnauthorized
	case "AuthenticationFailed":
		return "check the key, whether the signature has expired, and this machine's clock", queue.ErrUnauthorized
	}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return "check the credential and the account's firewall", queue.ErrUnauthorized
	case status == http.StatusNotFound && op == opList:
		return "check the account's name", queue.ErrInvalid
	case status == http.StatusNotFound && op != "update" && op != "delete":
		return "check the account and the queue's name", queue.ErrQueueMissing
	case status == http.StatusNotFound:
		return "", nil // the message or the queue: unknown
	case status == http.StatusRequestEntityTooLarge:
		return tooLargeHint, queue.ErrTooLarge
	case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
		return "", queue.ErrThrottled
	case status == http.StatusRequestTimeout, status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		return "", queue.ErrOutcomeUnknown // a gateway timed out
	case status >= 500:
		return "", queue.ErrUnavailable
	case status >= 400:
		return "", queue.ErrInvalid
	default:
		return foreignHint, queue.ErrOutcomeUnknown
	}
}

// responseError is an error response. Its text is the service's message; the SDK's text fills a
// page.
type responseError struct {
	response *azcore.ResponseError
	text     string
}

func (e *responseError) Error() string { return e.text }
func (e *responseError) Unwrap() error { return e.response }

// serviceMessage returns the message of the error document, without the full stop and without the
// lines that repeat request id and time. For any other document it returns the status text and a
// description of the content.
func (a *account) serviceMessage(resp *azcore.ResponseError, receipt queue.Receipt) string {
	if resp.RawResponse == nil {
		return ""
	}
	var document struct{ Message string }
	body, err := runtime.Payload(resp.RawResponse) // the pipeline has read it
	if err == nil && xml.Unmarshal(body, &document) == nil && document.Message != "" {
		line, _, _ := strings.Cut(strings.TrimSpace(document.Message), "\n")
		return a.redact(strings.TrimSuffix(strings.TrimSpace(line), "."), string(receipt))
	}
	text := http.StatusText(resp.StatusCode)
	if host := redirectHost(resp.RawResponse); host != "" {
		text += " to the host " + a.redact(host, string(receipt))
	}
	if err == nil && len(body) > 0 {
		text = strings.TrimPrefix(text+": "+a.describe(resp.RawResponse, body, receipt), ": ")
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
