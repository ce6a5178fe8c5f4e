package http1

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/millrace/millrace/internal/httpsyntax"
	"github.com/millrace/millrace/internal/units"
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

func (o *Options) validate() error {
	switch {
	case o.Connections < 0:
		return fmt.Errorf("create an HTTP/1.1 transport: Connections %d is negative: leave it 0 for the default", o.Connections)
	case o.IdleTimeout < 0:
		return fmt.Errorf("create an HTTP/1.1 transport: IdleTimeout %v is negative: leave it 0 for the default", o.IdleTimeout)
	}
	if err := units.Wait("IdleTimeout", o.IdleTimeout); err != nil {
		return fmt.Errorf("create an HTTP/1.1 transport: %w", err)
	}
	return nil
}

func (o Options) withDefaults() Options {
	if o.Connections == 0 {
		o.Connections = 256
	}
	if o.IdleTimeout == 0 {
		o.IdleTimeout = 90 * time.Second
	}
	if o.DialContext == nil {
		o.DialContext = (&net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	o.TLS = cmp.Or(o.TLS, &tls.Config{MinVersion: tls.VersionTLS12})
	if o.Proxy == nil {
		o.Proxy = http.ProxyFromEnvironment
	}
	return o
}

// newFallback returns a net/http client with the same options.
func (o Options) newFallback() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:                  o.Proxy,
			OnProxyConnectResponse: refusedConnect,
			DialContext:            o.DialContext,
			ReadBufferSize:         24, // net/http logs unsolicited data up to this size: shorter than a receipt
			MaxIdleConnsPerHost:    o.Connections,
			IdleConnTimeout:        o.IdleTimeout,
			TLSHandshakeTimeout:    handshakeTimeout,
			ExpectContinueTimeout:  time.Second,
			TLSClientConfig:        o.TLS.Clone(),
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// refusedConnect is the error of a proxy's answer to CONNECT that is not 200. Its type tells callers
// that no request was sent; the error of net/http has only a text.
func refusedConnect(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	return &net.OpError{Op: "proxyconnect", Net: "tcp", Err: fmt.Errorf("the proxy refused the connection: %s", resp.Status)}
}

const handshakeTimeout = 10 * time.Second

var errClosedEarly = errors.New("the server closed the connection without a response")

// Transport sends requests over connections that it keeps. Create one with [New]. It is safe for
// concurrent use.
type Transport struct {
	options  Options
	fallback policy.Transporter
	own      *http.Client // the default fallback; nil with Options.Fallback

	mu     sync.Mutex
	hosts  map[address]*host // never shrinks: a client talks to few; guarded by mu
	idle   int               // number of idle connections; guarded by mu
	expiry *time.Timer       // calls closeExpired; nil while no connection is idle; guarded by mu
	closed bool              // keep no connections; guarded by mu
}

var _ policy.Transporter = (*Transport)(nil)

// New returns a transport. It opens no connection. Nil options mean the defaults. It is an error if
// Connections or IdleTimeout is negative or lacks a unit.
func New(o *Options) (*Transport, error) {
	o = cmp.Or(o, &Options{})
	if err := o.validate(); err != nil {
		return nil, err
	}
	t := &Transport{options: o.withDefaults(), hosts: make(map[address]*host)}
	if t.fallback = o.Fallback; t.fallback == nil {
		t.own = t.options.newFallback()
		t.fallback = t.own
	}
	return t, nil
}

// Do sends a request once and returns the response with its body read. It implements
// [policy.Transporter].
func (t *Transport) Do(r *http.Request) (*http.Response, error) {
	h := t.host(r)
	if h == nil {
		return t.fallback.Do(r)
	}
	if stream, err := unknownLength(r); stream != nil {
		return t.fallback.Do(stream)
	} else if err != nil {
		_ = r.Body.Close() // it cannot be read
		return nil, err
	}
	out := requestBuffers.Get().(*[]byte)
	defer putBuffer(&requestBuffers, out)
	whole, usual, err := appendRequest((*out)[:0], r)
	if !usual {
		return t.fallback.Do(r)
	}
	if r.Body != nil {
		_ = r.Body.Close()
	}
	if err != nil {
		return nil, err
	}
	*out = whole
	resp, err := t.send(r.Context(), h, whole)
	if err != nil {
		return nil, err
	}
	resp.Request = r
	return resp, nil
}

// send does one round trip on an idle or a new connection.
func (t *Transport) send(ctx context.Context, h *host, request []byte) (*http.Response, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c := t.takeIdle(h)
	if c == nil {
		var err error
		if c, err = h.dial(ctx, t.options); err != nil {
			return nil, err
		}
	}
	watch := context.AfterFunc(ctx, c.abort)
	resp, reusable, err := c.roundTrip(request)
	if !watch() { // abort has been called
		c.close()
		if err != nil {
			return nil, context.Cause(ctx)
		}
		return resp, nil
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("request to %s failed: %w", h.name, err)
	}
	if reusable {
		t.putIdle(h, c)
	} else {
		c.close()
	}
	return resp, nil
}

// Close closes idle connections. Later requests still work, each on a connection that is closed
// afterwards; requests in progress are not affected. The error is always nil.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	if t.expiry != nil {
		t.expiry.Stop()
		t.expiry = nil
	}
	var all []*conn
	for _, h := range t.hosts {
		all = append(all, h.idle...)
		h.idle = nil
	}
	t.idle = 0
	t.mu.Unlock()
	for _, c := range all {
		c.close()
	}
	if t.own != nil {
		t.own.CloseIdleConnections()
	}
	return nil
}

type address struct{ scheme, host string }

// host is a server and its idle connections.
type host struct {
	name   string // host:port
	server string // name that its certificate must have
	secure bool
	direct bool    // false if the fallback serves it
	idle   []*conn // most recently used last; guarded by Transport.mu
}

// host returns the host of a request, or nil if the fallback serves it.
func (t *Transport) host(r *http.Request) *host {
	if r.URL == nil {
		return nil
	}
	key := address{r.URL.Scheme, r.URL.Host}
	t.mu.Lock()
	h := t.hosts[key]
	t.mu.Unlock()
	if h == nil {
		h = t.newHost(r) // without the lock: it asks the caller's Proxy
		t.mu.Lock()
		if known := t.hosts[key]; known != nil {
			h = known
		}
		t.hosts[key] = h
		t.mu.Unlock()
	}
	if !h.direct {
		return nil
	}
	return h
}

func (t *Transport) newHost(r *http.Request) *host {
	port := r.URL.Port()
	switch r.URL.Scheme {
	case "http":
		port = or(port, "80")
	case "https":
		port = or(port, "443")
	default:
		return &host{}
	}
	h := &host{secure: r.URL.Scheme == "https", server: r.URL.Hostname()}
	h.name = net.JoinHostPort(h.server, port)
	proxy, err := t.options.Proxy(r)
	h.direct = proxy == nil && err == nil && h.server != "" && httpsyntax.IsPlainHost(r.URL.Host)
	return h
}

func or(value, otherwise string) string {
	if value == "" {
		return otherwise
	}
	return value
}

// takeIdle returns a reusable idle connection, or nil. It prefers the most recently used one, so
// that surplus connections expire.
func (t *Transport) takeIdle(h *host) *conn {
	for {
		t.mu.Lock()
		last := len(h.idle) - 1
		if last < 0 {
			t.mu.Unlock()
			return nil
		}
		c := h.idle[last]
		h.idle[last] = nil
		h.idle = h.idle[:last]
		t.idle--
		t.mu.Unlock()
		if c.isReusable() {
			return c
		}
		c.close()
	}
}

// putIdle keeps a connection for the next request.
func (t *Transport) putIdle(h *host, c *conn) {
	c.idleSince = time.Now()
	t.mu.Lock()
	if t.closed || len(h.idle) >= t.options.Connections {
		t.mu.Unlock()
		c.close()
		return
	}
	h.idle = append(h.idle, c)
	t.idle++
	if t.expiry == nil {
		t.expiry = time.AfterFunc(t.options.IdleTimeout, t.closeExpired)
	}
	t.mu.Unlock()
}

// closeExpired closes connections that have been idle for IdleTimeout, and schedules itself again
// while others are idle.
func (t *Transport) closeExpired() {
	var old []*conn
	oldest := time.Duration(0) // longest idle time of those kept
	t.mu.Lock()
	for _, h := range t.hosts {
		n := 0
		for n < len(h.idle) && time.Since(h.idle[n].idleSince) >= t.options.IdleTimeout {
			n++
		}
		old = append(old, h.idle[:n]...)
		h.idle = append([]*conn(nil), h.idle[n:]...)
		t.idle -= n
		if len(h.idle) > 0 {
			oldest = max(oldest, time.Since(h.idle[0].idleSince))
		}
	}
	switch {
	case t.closed:
	case t.idle == 0:
		t.expiry = nil
	default:
		t.expiry = time.AfterFunc(t.options.IdleTimeout-oldest, t.closeExpired)
	}
	t.mu.Unlock()
	for _, c := range old {
		c.close()
	}
}

// dial opens a connection. A failed handshake is a dial error too, because no request was sent.
func (h *host) dial(ctx context.Context, o Options) (*conn, error) {
	raw, err := o.DialContext(ctx, "tcp", h.name)
	if err != nil {
		if operation := (*net.OpError)(nil); !errors.As(err, &operation) {
			err = &net.OpError{Op: "dial", Net: "tcp", Err: err}
		}
		return nil, err
	}
	c := newConn(raw)
	if !h.secure {
		return c, nil
	}
	config := o.TLS.Clone()
	config.NextProtos = []string{"http/1.1"}
	config.ServerName = or(config.ServerName, h.server)
	// Small records let a reader see the start of a stream sooner. A request is useful only
	// as a whole, and each record is one write to the socket.
	config.DynamicRecordSizingDisabled = true
	shaking, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	if err := c.startTLS(config).HandshakeContext(shaking); err != nil {
		_ = raw.Close() // the handshake says why
		if record := (tls.RecordHeaderError{}); errors.As(err, &record) && string(record.RecordHeader[:]) == "HTTP/" {
			err = http.ErrSchemeMismatch
		}
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err}
	}
	return c, nil
}
