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

// credential marks the errors of a credential: a pipeline returns them as its
// own, and it matters that no request was sent.
type markedCredential struct{ azcore.TokenCredential }

func (c markedCredential) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := c.TokenCredential.GetToken(ctx, o)
	if err != nil {
		err = &credentialError{err}
	}
	return token, err
}

// credentialError is the reason for which there is no token.
type credentialError struct{ err error }

func (e *credentialError) Error() string { return e.err.Error() }
func (e *credentialError) Unwrap() error { return e.err }

// NonRetriable tells azcore not to try again: retries are not made here.
func (e *credentialError) NonRetriable() {}

// translateDenial tells a credential that is refused, for which waiting does
// not help, from one that could not be asked.
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
