package http1

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

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

// New returns a transport. It opens no connection.
func New(o *Options) *Transport {
	if o == nil {
		o = &Options{}
	}
	t := &Transport{options: o.withDefaults(), hosts: make(map[address]*host)}
	if t.fallback = o.Fallback; t.fallback == nil {
		t.own = t.options.newFallback()
		t.fallback = t.own
	}
	return t
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
