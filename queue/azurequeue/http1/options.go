package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// Options configure [New]. Nil and the zero value mean the defaults.
type Options struct {
	// Connections is the number of idle connections that are kept for each host, about as many as
	// there are concurrent calls. Defaults to 256.
	Connections int

	// IdleTimeout is how long an idle connection is kept. Defaults to 90 s.
	IdleTimeout time.Duration

	// DialContext opens connections. Its errors should be those of a net.Dialer. Defaults to a
	// net.Dialer with a timeout of 30 s.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)

	// TLS configures connections to https addresses. It is copied; server name and protocol are
	// filled in. Defaults to TLS 1.2 or newer with the system's certificates.
	TLS *tls.Config

	// Proxy returns the proxy for a request, which Fallback then sends. It is called once for
	// each scheme and host. Defaults to http.ProxyFromEnvironment.
	Proxy func(*http.Request) (*url.URL, error)

	// Fallback sends the requests that this transport does not support. [Transport.Close] does
	// not close it. Defaults to a net/http client with the same options.
	Fallback policy.Transporter
}

func (o Options) withDefaults() Options {
	if o.Connections <= 0 {
		o.Connections = 256
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = 90 * time.Second
	}
	if o.DialContext == nil {
		o.DialContext = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	if o.TLS == nil {
		o.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	if o.Proxy == nil {
		o.Proxy = http.ProxyFromEnvironment
	}
	return o
}

// newFallback returns a net/http client with the same options.
func (o Options) newFallback() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                 o.Proxy,
			DialContext:           o.DialContext,
			MaxIdleConnsPerHost:   o.Connections,
			IdleConnTimeout:       o.IdleTimeout,
			TLSHandshakeTimeout:   handshakeTimeout,
			ExpectContinueTimeout: time.Second,
			TLSClientConfig:       o.TLS.Clone(),
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

const handshakeTimeout = 10 * time.Second

var errClosedEarly = errors.New("the server closed the connection without a response")
