package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/millrace/millrace/internal/httpsyntax"
)

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
