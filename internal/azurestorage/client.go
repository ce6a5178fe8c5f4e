package azurestorage

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/millrace/millrace/internal/retry"
)

// readBuffer is the number of bytes that net/http reads ahead. It logs them if a server or a proxy
// sends more than one response to a request. They must not contain a receipt, which has at least 28
// bytes, but a line with the size of a chunk must fit, with up to 18.
const readBuffer = 24

// NewClient returns an HTTP client that keeps so many idle connections. With fewer than there are
// concurrent calls, every burst opens new ones.
func NewClient(connections int) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			OnProxyConnectResponse: refusedConnect,
			DialContext:            dialBuffered,
			ReadBufferSize:         readBuffer,
			MaxIdleConns:           0, // there is one host: MaxIdleConnsPerHost applies
			MaxIdleConnsPerHost:    connections,
			IdleConnTimeout:        90 * time.Second,
			TLSHandshakeTimeout:    10 * time.Second,
			ExpectContinueTimeout:  time.Second,
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		},
		CheckRedirect: noRedirect,
	}
}

// dialBuffered opens a connection that reads ahead, so that [readBuffer] is not the size of a system
// call.
func dialBuffered(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return bufferedConn{c, bufio.NewReader(c)}, nil
}

type bufferedConn struct {
	net.Conn
	in *bufio.Reader
}

func (c bufferedConn) Read(p []byte) (int, error) { return c.in.Read(p) }

// refusedConnect is the error of a proxy's answer to CONNECT that is not 200. By its type [Unsent]
// knows that no request was sent; the error of net/http has only a text.
func refusedConnect(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return &net.OpError{Op: "proxyconnect", Net: "tcp", Err: fmt.Errorf("the proxy refused the connection: %s", resp.Status)}
}

// noRedirect follows no redirect. The service never redirects, so a redirect is a proxy's:
// following it would send a second request, with our signature, to another server.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// WithoutRedirects returns the transport or, for a client without CheckRedirect, a copy that does
// not follow redirects.
func WithoutRedirects(t policy.Transporter) policy.Transporter {
	c, ok := t.(*http.Client)
	if !ok || c.CheckRedirect != nil {
		return t
	}
	copied := *c
	copied.CheckRedirect = noRedirect
	return &copied
}

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

// Unsent reports whether err happened before the first byte of the request was sent: resolving,
// dialing or verifying the server failed.
func Unsent(err error) bool {
	var (
		operation   *net.OpError
		name        *net.DNSError
		certificate *tls.CertificateVerificationError
	)
	return errors.As(err, &operation) && (operation.Op == "dial" || operation.Op == "proxyconnect" || operation.Op == "socks connect") ||
		errors.As(err, &name) || errors.As(err, &certificate) || errors.Is(err, http.ErrSchemeMismatch) || isOtherTLS(err)
}

// TLSHint says what to do if a version of TLS is refused.
const TLSHint = "this program and the server, or a proxy between them, accept no common version of TLS: both need 1.2 or later"

// isOtherTLS reports whether the server and this machine have no version of TLS in common. crypto/tls
// has no error for it: one text is its own, and one is of the alert with which the server ends the
// handshake (RFC 8446, section 6.2, protocol_version).
func isOtherTLS(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "tls: server selected unsupported protocol version") ||
		strings.Contains(err.Error(), "remote error: tls: protocol version not supported"))
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
	case isOtherTLS(err):
		return TLSHint
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

// secretParameter matches a secret parameter of a URL or a connection string, which may be escaped.
var secretParameter = regexp.MustCompile(`(?i)((?:\b|%(?:25)*[0-9a-f]{2})(?:sig|popreceipt|accountkey|sharedaccesssignature)(?:=|%(?:25)*3d))[^&;\s"'<>]*`)

// authorizationHeader matches the credentials of an Authorization header.
var authorizationHeader = regexp.MustCompile(`(?i)\b(SharedKey|SharedKeyLite|Bearer)\s+[^\s"'<>]+`)

// proxyLogin matches a Proxy-Authorization header, and the login in the address of a proxy.
var proxyLogin = regexp.MustCompile(`(?i)(proxy-authorization["']?\s*(?::\s?|%(?:25)*3a))[^\r\n]*|(://)[^/?#\s"'<>@]*:[^/?#\s"'<>@]*(@)`)

// Redact returns the text on one line without secrets: those of the location, other given ones
// such as receipts, and anything that looks like one.
func (at Location) Redact(text string, others ...string) string {
	for _, s := range slices.Concat(at.secrets, others) {
		text = withoutSecret(text, s)
	}
	text = proxyLogin.ReplaceAllString(text, "${1}${2}REDACTED${3}")
	text = authorizationHeader.ReplaceAllString(secretParameter.ReplaceAllString(text, "${1}REDACTED"), "$1 REDACTED")
	return strings.Join(strings.Fields(text), " ")
}

// withoutSecret replaces a secret in a text, however often its characters are escaped for a URL.
func withoutSecret(text, secret string) string {
	if secret == "" {
		return text
	}
	var b strings.Builder
	for text != "" {
		if n := secretLength(text, secret); n > 0 {
			b.WriteString("REDACTED")
			text = text[n:]
			continue
		}
		b.WriteByte(text[0])
		text = text[1:]
	}
	return b.String()
}

// secretLength returns the length of the secret that the text begins with, or 0.
func secretLength(text, secret string) (length int) {
	for i := range len(secret) {
		n := characterLength(text[length:], secret[i])
		if n == 0 {
			return 0
		}
		length += n
	}
	return length
}

// characterLength returns the length of the form of a character that the text begins with, or 0: as
// it is, "%2f", or "%252F" after a second escape. A plus stands for a space, and the other way round
// after a plus that was not escaped.
func characterLength(text string, c byte) int {
	is := func(found byte) bool { return found == c || (found == ' ' || found == '+') && (c == ' ' || c == '+') }
	switch {
	case text == "":
		return 0
	case is(text[0]):
		return 1
	case text[0] != '%':
		return 0
	}
	n := 1
	for strings.HasPrefix(text[n:], "25") {
		n += len("25")
	}
	if len(text) < n+2 {
		return 0
	}
	found, err := strconv.ParseUint(text[n:n+2], 16, 8)
	if err != nil || !is(byte(found)) {
		return 0
	}
	return n + 2
}

// RedactError returns err with a redacted text. The text of a [*url.Error] is dropped because it
// contains the whole query.
func (at Location) RedactError(err error, others ...string) error {
	if outer := (*url.Error)(nil); errors.As(err, &outer) {
		err = outer.Err
	}
	return &redactedError{at.Redact(err.Error(), others...), err}
}

// redactedError is an error with a redacted text. Is and As reach the error underneath; Unwrap
// does not, so that nobody prints it.
type redactedError struct {
	text string
	err  error
}

func (e *redactedError) Error() string        { return e.text }
func (e *redactedError) Is(target error) bool { return errors.Is(e.err, target) }
func (e *redactedError) As(target any) bool   { return errors.As(e.err, target) }

// RetryAfter returns the wait in a header Retry-After, which has seconds or a time. It is 0 for
// anything else.
func RetryAfter(text string) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil || errors.Is(err, strconv.ErrRange) { // then it is the maximum
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return max(time.Until(at), 0)
}
