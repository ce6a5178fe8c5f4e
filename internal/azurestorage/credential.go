package azurestorage

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

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

// Connect opens an SDK's client of the service at a location, with the constructors of that SDK. It returns the client's HTTP client too if
// the transport is nil, so that it can be closed. Errors are [*ParseError] for options that contradict the location, and
// [*CredentialError] if no credential is found. They have no secrets.
func Connect[C, K, O any](at Location, credential azcore.TokenCredential, transport policy.Transporter, connections int, sdk Constructors[C, K, O]) (client C, own *http.Client, err error) {
	if credential != nil && at.Auth != TokenAuth {
		return client, nil, invalid("leave one of them out", "both a Credential and a %s in the location", at.Auth)
	}
	if transport == nil {
		own = NewClient(connections)
		transport = own
	}
	o := sdk.Options(WithoutRedirects(transport))
	switch at.Auth {
	case KeyAuth:
		var key K
		if key, err = sdk.Key(at.Account, at.Key); err == nil {
			client, err = sdk.WithKey(at.Endpoint, key, o)
		}
	case SASAuth:
		client, err = sdk.WithoutCredential(at.Endpoint+"?"+at.Signature, o)
	default:
		if credential == nil {
			if credential, err = azidentity.NewDefaultAzureCredential(nil); err != nil {
				return client, nil, &CredentialError{at.RedactError(err)}
			}
		}
		client, err = sdk.WithToken(at.Endpoint, MarkedCredential{credential}, o)
	}
	if err != nil {
		return client, nil, at.RedactError(err)
	}
	return client, own, nil
}

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

// Sign authorizes a request without a body with the location's key or signature, for requests that no SDK
// has. The request has all its headers x-ms-… and its query, except for what Sign adds. With TokenAuth it
// adds nothing.
func (at Location) Sign(r *http.Request) error {
	switch at.Auth {
	case SASAuth:
		r.URL.RawQuery = strings.TrimPrefix(r.URL.RawQuery+"&"+at.Signature, "&")
	case KeyAuth:
		key, err := base64.StdEncoding.DecodeString(at.Key)
		if err != nil {
			return fmt.Errorf("sign with the account's key: %w", at.RedactError(err))
		}
		r.Header.Set("x-ms-date", time.Now().UTC().Format(http.TimeFormat))
		h := hmac.New(sha256.New, key)
		h.Write([]byte(at.stringToSign(r)))
		r.Header.Set("Authorization", "SharedKey "+at.Account+":"+base64.StdEncoding.EncodeToString(h.Sum(nil)))
	case TokenAuth:
	}
	return nil
}

// stringToSign is that of "Authorize with Shared Key" for a request without a body and without standard
// headers.
func (at Location) stringToSign(r *http.Request) string {
	const standardHeaders = 11 // all empty
	var b strings.Builder
	b.WriteString(r.Method + strings.Repeat("\n", standardHeaders+1))
	var names []string
	for name := range r.Header {
		if name = strings.ToLower(name); strings.HasPrefix(name, "x-ms-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		b.WriteString(name + ":" + strings.TrimSpace(r.Header.Get(name)) + "\n")
	}
	b.WriteString("/" + at.Account + r.URL.EscapedPath())
	parameters := map[string][]string{}
	query, _ := url.ParseQuery(r.URL.RawQuery) // as the caller made it
	for name, values := range query {
		lower := strings.ToLower(name)
		parameters[lower] = append(parameters[lower], values...)
	}
	for _, name := range slices.Sorted(maps.Keys(parameters)) {
		slices.Sort(parameters[name])
		b.WriteString("\n" + name + ":" + strings.Join(parameters[name], ","))
	}
	return b.String()
}
