package azurestorage

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/retry"
)

// ErrTryTimeout is the cause when the time for one request ends it. It distinguishes that from
// the end of the caller's context.
var ErrTryTimeout = errors.New("no response in time")

// maxDoublings is how often the time-out of a request doubles when it is repeated.
const maxDoublings = 2

// TryTimeout returns the time-out of the next try: tryTimeout, or more for a request that is
// repeated. If the service responds, but later than that, the same time-out would fail each try.
func TryTimeout(ctx context.Context, tryTimeout time.Duration) time.Duration {
	longer := tryTimeout << min(retry.Repeats(ctx), maxDoublings)
	return max(tryTimeout, longer) // longer may have overflowed
}

// ContextError returns the context's error, which callers match, joined with its cause.
func ContextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Unsent reports whether err happened before the first byte of the request was sent: resolving,
// dialing or verifying the server failed.
func Unsent(err error) bool {
	var (
		operation   *net.OpError
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
	)
	return errors.As(err, &operation) && (operation.Op == "dial" || operation.Op == "proxyconnect" || operation.Op == "socks connect") ||
		errors.As(err, &name) || errors.As(err, &certificate) || errors.Is(err, http.ErrSchemeMismatch)
}

// NeverSent reports whether nothing was sent to the service: the request could not be, or there was no token for it.
func NeverSent(err error) bool {
	denied := (*CredentialError)(nil)
	return Unsent(err) || errors.As(err, &denied)
}

// NetworkHint says what to do about an error by which nothing was sent.
func (at Location) NetworkHint(err error) string {
	var (
		dns         *net.DNSError
		name        x509.HostnameError
		certificate *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return "check the account's name, and this machine's name resolution"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "the address says https, the server speaks http"
	case errors.As(err, &name):
		return "the server's certificate is for other names: use one of them in the address, or give the server a certificate for this one"
	case errors.As(err, &certificate):
		return "this machine does not trust the server's certificate: install the certificate of its authority, or on Linux name it in SSL_CERT_FILE"
	case at.Hint != "":
		return at.Hint
	default:
		return "check the address, the network and the account's firewall"
	}
}
