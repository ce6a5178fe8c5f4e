package azurestorage

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

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
		c.Authorize = withSignature(at.Signature)
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

// Sign authorizes a request that no SDK sends with the location's key or signature. The request has all its headers and
// its query, except for what Sign adds. With TokenAuth it adds nothing.
func (at Location) Sign(r *http.Request) error {
	switch at.Auth {
	case SASAuth:
		withSignature(at.Signature).sign(r)
	case KeyAuth:
		return newSigner(at).sign(r)
	case TokenAuth:
	}
	return nil
}

// withSignature is the policy of a shared access signature, a query.
type withSignature string

// Do implements [policy.Policy].
func (s withSignature) Do(r *policy.Request) (*http.Response, error) {
	s.sign(r.Raw())
	return r.Next()
}

func (s withSignature) sign(r *http.Request) {
	r.URL.RawQuery = strings.TrimPrefix(r.URL.RawQuery+"&"+string(s), "&")
}

// signer is the policy of an account's key, "Authorize with Shared Key". Those of the SDKs take as long as the rest of a
// request, because they parse and sort by way of maps.
type signer struct {
	account string
	idle    sync.Pool // of *signing
	bad     error     // the key is not Base64
}

// signing is what signing a request needs; it is used again.
type signing struct {
	mac     hash.Hash
	sum     []byte
	text    []byte
	headers []string
	query   []parameter
}

type parameter struct{ name, value string }

func newSigner(at Location) *signer {
	s := &signer{account: at.Account}
	key, err := base64.StdEncoding.DecodeString(at.Key)
	if err != nil {
		s.bad = fmt.Errorf("sign with the account's key: %w", at.RedactError(err))
	}
	s.idle.New = func() any { return &signing{mac: hmac.New(sha256.New, key)} }
	return s
}

// Do implements [policy.Policy].
func (s *signer) Do(r *policy.Request) (*http.Response, error) {
	if err := s.sign(r.Raw()); err != nil {
		return nil, err
	}
	return r.Next()
}

func (s *signer) sign(r *http.Request) error {
	if s.bad != nil {
		return s.bad
	}
	with := s.idle.Get().(*signing)
	defer s.idle.Put(with)
	if r.Header.Get("X-Ms-Date") == "" {
		with.text = time.Now().UTC().AppendFormat(with.text[:0], http.TimeFormat)
		r.Header["X-Ms-Date"] = []string{string(with.text)}
	}
	with.write(s.account, r)
	with.mac.Reset()
	with.mac.Write(with.text)
	with.sum = with.mac.Sum(with.sum[:0])
	with.text = append(append(append(with.text[:0], "SharedKey "...), s.account...), ':')
	with.text = base64.StdEncoding.AppendEncode(with.text, with.sum)
	r.Header["Authorization"] = []string{string(with.text)}
	return nil
}

// write writes the string to sign.
func (s *signing) write(account string, r *http.Request) {
	text := append(append(s.text[:0], r.Method...), "\n\n\n"...) // no encoding, no language
	if r.ContentLength > 0 {
		text = strconv.AppendInt(text, r.ContentLength, 10)
	}
	text = append(append(append(text, "\n\n"...), r.Header.Get("Content-Type")...), "\n\n\n\n\n\n\n"...) // the date is in x-ms-date
	s.headers = s.headers[:0]
	for name := range r.Header {
		if len(name) > 5 && strings.EqualFold(name[:5], "x-ms-") {
			s.headers = append(s.headers, name)
		}
	}
	slices.SortFunc(s.headers, compareLower)
	for _, name := range s.headers {
		text = append(appendLower(text, name), ':')
		text = append(append(text, strings.TrimSpace(r.Header[name][0])...), '\n')
	}
	text = append(append(append(text, '/'), account...), r.URL.EscapedPath()...)
	s.query = s.query[:0]
	for part := range strings.SplitSeq(r.URL.RawQuery, "&") {
		if name, value, _ := strings.Cut(part, "="); part != "" {
			name, _ = url.QueryUnescape(name) // as the caller made it
			value, _ = url.QueryUnescape(value)
			s.query = append(s.query, parameter{name, value})
		}
	}
	slices.SortFunc(s.query, func(a, b parameter) int { return cmp.Or(compareLower(a.name, b.name), cmp.Compare(a.value, b.value)) })
	for i, p := range s.query {
		if i > 0 && compareLower(p.name, s.query[i-1].name) == 0 {
			text = append(text, ',')
		} else {
			text = append(appendLower(append(text, '\n'), p.name), ':')
		}
		text = append(text, p.value...)
	}
	s.text = text
}

// compareLower compares two names in lower case.
func compareLower(a, b string) int {
	for i := range min(len(a), len(b)) {
		if c := cmp.Compare(lower(a[i]), lower(b[i])); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

func appendLower(text []byte, name string) []byte {
	for i := range len(name) {
		text = append(text, lower(name[i]))
	}
	return text
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
