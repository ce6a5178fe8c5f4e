package azureblob

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/millrace/millrace/blob"
	"github.com/millrace/millrace/internal/azurestorage"
)

const foreignHint = "this is not a response of a blob service: check the address, and look for a proxy or a login page in between"

// foreignError is a response with a success status that is not the service's.
type foreignError struct{ lacks string }

func (e *foreignError) Error() string { return "the response has no " + e.lacks }

// translate turns an error of azblob into a [*blob.Error] without secrets. ctx is the caller's
// context, try the one with our time-out.
func (s *Store) translate(ctx, try context.Context, err error) error {
	if resp := (*azcore.ResponseError)(nil); errors.As(err, &resp) {
		return s.translateResponse(resp)
	}
	if foreign := (*foreignError)(nil); errors.As(err, &foreign) {
		return &blob.Error{Kind: blob.ErrUnavailable, Detail: foreign.Error(), Hint: foreignHint}
	}
	if denied := (*azurestorage.CredentialError)(nil); errors.As(err, &denied) {
		return s.translateCredential(ctx, denied)
	}
	if ctx.Err() != nil { // the SDK does not say whether the request was sent
		return &blob.Error{Err: s.location.RedactError(azurestorage.ContextError(ctx)), Detail: "the wait for the response ended"}
	}
	if errors.Is(context.Cause(try), azurestorage.ErrTryTimeout) {
		// Err stays nil: this deadline is not the caller's.
		return &blob.Error{Kind: blob.ErrUnavailable, Detail: fmt.Sprintf("no response within %v", azurestorage.TryTimeout(ctx, s.tryTimeout))}
	}
	e := &blob.Error{Kind: blob.ErrUnavailable, Err: s.location.RedactError(err)}
	if azurestorage.Unsent(err) {
		e.Hint = s.location.NetworkHint(err)
	}
	return e
}

func (s *Store) translateResponse(resp *azcore.ResponseError) *blob.Error {
	e := &blob.Error{Status: resp.StatusCode, Code: resp.ErrorCode}
	e.Hint, e.Kind = classify(resp.StatusCode, resp.ErrorCode)
	if r := resp.RawResponse; r != nil {
		e.RequestID = s.location.Redact(r.Header.Get(azurestorage.RequestIDHeader))
	}
	e.Err = s.location.ResponseError(resp, func(resp *http.Response, body []byte) string {
		return s.location.Describe(resp, body)
	})
	return e
}

func (s *Store) translateCredential(ctx context.Context, denied *azurestorage.CredentialError) *blob.Error {
	e := &blob.Error{Kind: blob.ErrUnauthorized, Detail: "no token, nothing was sent", Err: s.location.RedactError(denied.Unwrap()), Hint: azurestorage.LoginHint}
	switch {
	case ctx.Err() != nil:
		e.Kind, e.Err, e.Hint = nil, s.location.RedactError(azurestorage.ContextError(ctx)), ""
	case denied.Transient():
		e.Kind, e.Hint = blob.ErrUnavailable, ""
	}
	return e
}

// known are the storage error codes that need more than their status says. They are those of the
// Blob service REST API, "Blob service error codes" and "Common REST API error codes".
var known = map[string]struct {
	kind error
	hint string
}{
	codeBlobNotFound:                    {blob.ErrMissing, ""},
	codeContainerNotFound:               {blob.ErrMissing, ""},
	"BlobAlreadyExists":                 {blob.ErrExists, ""},
	"ContainerBeingDeleted":             {blob.ErrUnavailable, "wait, or use another container"},
	"ContainerDisabled":                 {blob.ErrUnauthorized, "an administrator has disabled the container"},
	"AccountBeingCreated":               {blob.ErrUnavailable, "wait until the account is there"},
	"Md5Mismatch":                       {blob.ErrUnavailable, "the content was damaged on its way"},
	"AuthorizationPermissionMismatch":   {blob.ErrUnauthorized, permissionHint},
	"AuthorizationResourceTypeMismatch": {blob.ErrUnauthorized, permissionHint},
	"AuthorizationServiceMismatch":      {blob.ErrUnauthorized, permissionHint},
	"InsufficientAccountPermissions":    {blob.ErrUnauthorized, permissionHint},
	"AuthorizationProtocolMismatch":     {blob.ErrUnauthorized, "the signature is for https only"},
	"AuthenticationFailed":              {blob.ErrUnauthorized, "check the key, whether the signature has expired, and this machine's clock"},
	"PublicAccessNotPermitted":          {blob.ErrUnauthorized, "allow public access to blobs in the account's configuration"},
	"BlobImmutableDueToPolicy":          {blob.ErrUnauthorized, "the container has an immutability policy"},
	"LeaseIdMissing":                    {blob.ErrUnauthorized, "another program holds a lease on the blob: wait until it ends, or break it"},
	"SnapshotsPresent":                  {blob.ErrInvalid, "the blob has snapshots: delete them first"},
	"BlobArchived":                      {blob.ErrInvalid, "the blob is in the archive tier: rehydrate it first"},
	"InvalidBlobType":                   {blob.ErrInvalid, "another program made it a page or append blob: delete it first"},
	"InvalidBlobOrBlock":                {blob.ErrInvalid, "another program's upload of this blob has not ended: use another name, or wait for a week"},
}

const permissionHint = `give the identity the role "Storage Blob Data Contributor", or the signature the permission it lacks`

// classify returns the kind of error for a status and a storage error code, and what to do about
// it.
func classify(status int, code string) (hint string, kind error) {
	if k, ok := known[code]; ok {
		return k.hint, k.kind
	}
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return "check the credential, and the account's firewall", blob.ErrUnauthorized
	case status == http.StatusNotFound && code == "": // a proxy's, or another server's
		return foreignHint, blob.ErrInvalid
	case status == http.StatusNotFound:
		return "check the account's name", blob.ErrInvalid
	case status == http.StatusProxyAuthRequired:
		return "the proxy asks for a login", blob.ErrUnauthorized
	case status == http.StatusTooManyRequests, status == http.StatusRequestTimeout, status >= 500:
		return "", blob.ErrUnavailable
	case status >= 400:
		return "", blob.ErrInvalid
	default:
		return foreignHint, blob.ErrUnavailable
	}
}
