package azurequeue

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/millrace/millrace/internal/azurestorage"
	"github.com/millrace/millrace/internal/serviceerror"
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
	if denied := (*azurestorage.CredentialError)(nil); errors.As(err, &denied) {
		return a.translateCredentialError(ctx, denied)
	}
	if ctx.Err() != nil { // the SDK does not say whether the request was sent
		return &queue.Error{Kind: queue.ErrOutcomeUnknown, Err: a.location.RedactError(serviceerror.Ended(ctx), string(receipt)), Detail: "the wait for the response ended"}
	}
	if errors.Is(context.Cause(try), azurestorage.ErrTryTimeout) {
		// Err stays nil: this deadline is not the caller's.
		return &queue.Error{Kind: queue.ErrOutcomeUnknown, Detail: fmt.Sprintf("no response within %v", azurestorage.TryTimeout(ctx, a.tryTimeout))}
	}
	e := &queue.Error{Kind: queue.ErrOutcomeUnknown, Err: a.location.RedactError(err, string(receipt))}
	if azurestorage.Unsent(err) {
		e.Kind, e.Hint = queue.ErrUnavailable, a.location.NetworkHint(err)
	}
	return e
}

func (a *account) translateErrorResponse(op string, receipt queue.Receipt, resp *azcore.ResponseError) *queue.Error {
	err := a.location.ResponseError(resp, func(resp *http.Response, body []byte) string {
		return a.describe(resp, body, receipt)
	}, string(receipt))
	e := &queue.Error{Status: resp.StatusCode, Code: resp.ErrorCode, Err: err}
	e.Hint, e.Kind = classify(op, resp.StatusCode, resp.ErrorCode)
	if r := resp.RawResponse; r != nil {
		if errors.Is(e.Kind, queue.ErrThrottled) {
			e.RetryAfter = azurestorage.RetryAfter(r.Header.Get("Retry-After"))
		}
		e.RequestID = a.location.Redact(r.Header.Get(azurestorage.RequestIDHeader), string(receipt))
	}
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
	case "TlsVersionNotPermitted":
		return azurestorage.TLSHint, queue.ErrUnavailable
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

// translateCredentialError translates the error of a credential: nothing was sent.
func (a *account) translateCredentialError(ctx context.Context, denied *azurestorage.CredentialError) *queue.Error {
	e := &queue.Error{Kind: queue.ErrUnauthorized, Detail: "no token, nothing was sent", Err: a.location.RedactError(denied), Hint: azurestorage.LoginHint}
	switch {
	case ctx.Err() != nil:
		e.Kind, e.Err, e.Hint = nil, a.location.RedactError(serviceerror.Ended(ctx)), ""
	case denied.Transient():
		e.Kind, e.Hint = queue.ErrUnavailable, ""
	}
	return e
}

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
	return &unusableResponseError{status: resp.StatusCode, requestID: resp.Header.Get(azurestorage.RequestIDHeader), resp: resp, body: body}
}

// incompleteResponse is a response of the service that lacks a required part.
func incompleteResponse(status int, requestID *string, lacks string) *unusableResponseError {
	return &unusableResponseError{status: status, requestID: value(requestID), why: "the response has no " + lacks}
}

func (a *account) translateUnusableResponse(u *unusableResponseError, receipt queue.Receipt) *queue.Error {
	e := &queue.Error{Kind: queue.ErrOutcomeUnknown, Status: u.status, RequestID: a.location.Redact(u.requestID, string(receipt)), Detail: u.why}
	if u.why == "" {
		e.Detail, e.Hint = "the response is "+a.describe(u.resp, u.body, receipt), foreignHint
	}
	return e
}

// describe summarizes a response for an error. A message list contains receipts and is never
// quoted.
func (a *account) describe(resp *http.Response, body []byte, receipt queue.Receipt) string {
	if bytes.Contains(body, []byte(listName)) {
		return fmt.Sprintf("a message list where none is expected, %d bytes", len(body))
	}
	return a.location.Describe(resp, body, string(receipt))
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
