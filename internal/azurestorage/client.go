package azurestorage

import (
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// NewClient returns an HTTP client that keeps so many idle connections. With fewer than there are
// concurrent calls, every burst opens new ones.
func NewClient(connections int) *http.Client {
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
