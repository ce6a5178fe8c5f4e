package azurequeue

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// newClient returns an HTTP client that keeps so many idle connections: with
// fewer than there are calls at once, every burst opens new ones.
func newClient(connections int) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			MaxIdleConns:          0, // bounded by the host, of which there is one
			MaxIdleConnsPerHost:   connections,
			IdleConnTimeout:       90 * time.Second,
			TLSHandshakeTimeout:   10 * time.Second,
			ExpectContinueTimeout: time.Second,
			TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
		},
		CheckRedirect: noRedirect,
	}
}

// stay follows no redirect. The service never redirects; who does is in between: following
// would be a second request, to somebody whom our signature is not for, and whose answer
// is not the service's.
func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// staying returns the transport, or, of a client that would follow redirects without having
// been told to, a copy that does not.
func withoutRedirects(t policy.Transporter) policy.Transporter {
	c, ok := t.(*http.Client)
	if !ok || c.CheckRedirect != nil {
		return t
	}
	copied := *c
	copied.CheckRedirect = noRedirect
	return &copied
}

// onlyOnce keeps net/http from sending a request twice. Its Transport repeats a
// GET without a body when the connection breaks before the answer, because a
// GET changes nothing; a dequeue is a GET and hides 32 messages.
type sendOnce struct{ next policy.Transporter }

// Do implements [policy.Transporter].
func (t sendOnce) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil && r.Method == http.MethodGet {
		r = r.WithContext(r.Context()) // a copy: the request is not ours
		r.Body = noBody{}
	}
	return t.next.Do(r)
}

// noBody is an empty body that is not [http.NoBody], which net/http would know
// to be repeatable. On the wire it is no body.
type noBody struct{}

func (noBody) Read([]byte) (int, error) { return 0, io.EOF }
func (noBody) Close() error             { return nil }
