package azurestorage

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
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

// Connection is what [Connect] returns.
type Connection[C any] struct {
	Client C
	Own    *http.Client // nil if the caller provided the transport

	// For requests that no SDK sends.
	Transport policy.Transporter
	Authorize policy.Policy
}

// Connect opens an SDK's client of the service at a location, with the constructors of that SDK. Errors are [*ParseError] for options
// that contradict the location, and [*CredentialError] if no credential is found. They have no secrets.
func Connect[C, K, O any](at Location, credential azcore.TokenCredential, transport policy.Transporter, connections int, sdk Constructors[C, K, O]) (c Connection[C], err error) {
	if credential != nil && at.Auth != TokenAuth {
		return c, invalid("leave one of them out", "both a Credential and a %s in the location", at.Auth)
	}
	if transport == nil {
		c.Own = NewClient(connections)
		transport = c.Own
	}
	c.Transport = WithoutRedirects(transport)
	o := sdk.Options(c.Transport)
	switch at.Auth {
	case KeyAuth:
		var key K
		if key, err = sdk.Key(at.Account, at.Key); err == nil {
			c.Client, err = sdk.WithKey(at.Endpoint, key, o)
		}
		c.Authorize = newSigner(at)
	case SASAuth:
		c.Client, err = sdk.WithoutCredential(at.Endpoint+"?"+at.Signature, o)
		c.Authorize = newSignature(at)
	case TokenAuth:
		if credential == nil {
			if credential, err = azidentity.NewDefaultAzureCredential(nil); err != nil {
				return Connection[C]{}, &CredentialError{at.RedactError(err)}
			}
		}
		credential = MarkedCredential{credential}
		c.Client, err = sdk.WithToken(at.Endpoint, credential, o)
		c.Authorize = runtime.NewBearerTokenPolicy(credential, []string{tokenScope}, nil)
	}
	if err != nil {
		return Connection[C]{}, at.RedactError(err)
	}
	return c, nil
}

// tokenScope is that of all services of a storage account, in each cloud.
const tokenScope = "https://storage.azure.com/.default"

// Constructors are those of an SDK with clients C, shared keys K, and options O of a client.
type Constructors[C, K, O any] struct {
	Options           func(t policy.Transporter) O
	Key               func(account, key string) (K, error)
	WithKey           func(endpoint string, key K, o O) (C, error)
	WithoutCredential func(endpoint string, o O) (C, error)
	WithToken         func(endpoint string, c azcore.TokenCredential, o O) (C, error)
}

// Unopened explains an error of [Connect], with the kinds of errors of a client.
func Unopened(err, unauthorized, invalid error) Failure {
	if wrong := (*ParseError)(nil); errors.As(err, &wrong) {
		return Failure{Kind: invalid, Detail: wrong.Detail, Hint: wrong.Hint}
	}
	if denied := (*CredentialError)(nil); errors.As(err, &denied) {
		return Failure{Kind: unauthorized, Err: denied, Hint: LoginHint}
	}
	return Failure{Kind: invalid, Err: err}
}
