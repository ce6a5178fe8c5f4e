package azurequeue

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/millrace/millrace/queue"
)

const loginHint = "run az login, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or give the machine a managed identity"

// markedCredential marks a credential's errors. The pipeline returns them unchanged, and
// translate must know that no request was sent.
type markedCredential struct{ azcore.TokenCredential }

func (c markedCredential) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := c.TokenCredential.GetToken(ctx, o)
	if err != nil {
		err = &credentialError{err}
	}
	return token, err
}

// credentialError means that no token could be obtained.
type credentialError struct{ err error }

func (e *credentialError) Error() string { return e.err.Error() }
func (e *credentialError) Unwrap() error { return e.err }

// NonRetriable tells azcore not to retry.
func (e *credentialError) NonRetriable() {}

// translateCredentialError distinguishes a rejected credential, which waiting does not fix, from
// a token service that could not be reached.
func (a *account) translateCredentialError(ctx context.Context, denied *credentialError) *queue.Error {
	e := &queue.Error{Kind: queue.ErrUnauthorized, Detail: "no token, nothing was sent", Err: a.redactError(denied.err), Hint: loginHint}
	var (
		failed  *azidentity.AuthenticationFailedError
		network net.Error
	)
	switch {
	case ctx.Err() != nil:
		e.Kind, e.Err, e.Hint = nil, a.redactError(contextError(ctx)), ""
	case errors.As(denied.err, &failed) && failed.RawResponse != nil && isTransientStatus(failed.RawResponse.StatusCode),
		errors.As(denied.err, &network):
		e.Kind, e.Hint = queue.ErrUnavailable, ""
	}
	return e
}

func isTransientStatus(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500
}
