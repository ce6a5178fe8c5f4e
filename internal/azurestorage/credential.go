package azurestorage

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
)

// LoginHint says what to do if no token could be obtained.
const LoginHint = "run az login, or set AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or give the machine a managed identity"

// MarkedCredential marks a credential's errors as [*CredentialError]. The pipeline returns them
// unchanged, and they tell that no request was sent.
type MarkedCredential struct{ azcore.TokenCredential }

// GetToken implements [azcore.TokenCredential].
func (c MarkedCredential) GetToken(ctx context.Context, o policy.TokenRequestOptions) (azcore.AccessToken, error) {
	token, err := c.TokenCredential.GetToken(ctx, o)
	if err != nil {
		err = &CredentialError{err}
	}
	return token, err
}

// CredentialError means that no token could be obtained.
type CredentialError struct{ err error }

func (e *CredentialError) Error() string { return e.err.Error() }
func (e *CredentialError) Unwrap() error { return e.err }

// NonRetriable tells azcore not to retry.
func (e *CredentialError) NonRetriable() {}

// Transient distinguishes a token service that could not be reached from a rejected credential,
// which waiting does not fix.
func (e *CredentialError) Transient() bool {
	var (
		failed  *azidentity.AuthenticationFailedError
		network net.Error
	)
	return errors.As(e.err, &failed) && failed.RawResponse != nil && isTransientStatus(failed.RawResponse.StatusCode) ||
		errors.As(e.err, &network)
}

func isTransientStatus(status int) bool {
	return status == http.StatusTooManyRequests || status == http.StatusRequestTimeout || status >= 500
}
