package azurestorage

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/millrace/millrace/internal/serviceerror"
)

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
		return Failure{Err: at.RedactError(ContextError(ctx)), Detail: "the wait for the response ended"}
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
	f := Failure{Status: resp.StatusCode, Code: resp.ErrorCode}
	f.Hint, f.Kind = known.Classify(resp.StatusCode, resp.ErrorCode)
	if r := resp.RawResponse; r != nil {
		f.RequestID = at.Redact(r.Header.Get(RequestIDHeader))
	}
	f.Err = at.ResponseError(resp, func(resp *http.Response, body []byte) string {
		return at.Describe(resp, body)
	})
	return f
}

// denied is for an error of a credential: nothing was sent.
func (at Location) denied(ctx context.Context, denied *CredentialError, known Failures) Failure {
	f := Failure{Kind: known.Unauthorized, Detail: "no token, nothing was sent", Err: at.RedactError(denied), Hint: LoginHint}
	switch {
	case ctx.Err() != nil:
		f.Kind, f.Err, f.Hint = nil, at.RedactError(ContextError(ctx)), ""
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
