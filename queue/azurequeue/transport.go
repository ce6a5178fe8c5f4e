package azurequeue

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// newClient returns an HTTP client that keeps so many idle connections. With fewer than there are
// concurrent calls, every burst opens new ones.
func newClient(connections int) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			MaxIdleConns:          0, // there is one host: MaxIdleConnsPerHost applies
			MaxIdleConnsPerHost:   connections,
			IdleConnTimeout:       90 * time.Second,
			TLSHandshakeTimeout:   10 * time.Second,
			ExpectContinueTimeout: time.Second,
			TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
		},
		CheckRedirect: noRedirect,
	}
}

// noRedirect follows no redirect. The service never redirects, so a redirect is a proxy's:
// following it would send a second request, with our signature, to another server.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// withoutRedirects returns the transport or, for a client without CheckRedirect, a copy that does
// not follow redirects.
func withoutRedirects(t policy.Transporter) policy.Transporter {
	c, ok := t.(*http.Client)
	if !ok || c.CheckRedirect != nil {
		return t
	}
	copied := *c
	copied.CheckRedirect = noRedirect
	return &copied
}

// sendOnce keeps net/http from sending a request twice. Its Transport repeats a GET without a
// body if the connection breaks before the response, because a GET changes nothing. But a dequeue
// is a GET, and hides 32 messages.
type sendOnce struct{ next policy.Transporter }

// Do implements [policy.Transporter].
func (t sendOnce) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil && r.Method == http.MethodGet {
		r = r.WithContext(r.Context()) // a copy: the caller owns the request
		r.Body = noBody{}
	}
	return t.next.Do(r)
}

// noBody is an empty body that is not [http.NoBody], which net/http considers repeatable. It
// sends nothing.
type noBody struct{}

func (noBody) Read([]byte) (int, error) { return 0, io.EOF }
func (noBody) Close() error             { return nil }
