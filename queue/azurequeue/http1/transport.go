package http1

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
)

// Transport sends requests over connections that it keeps. Make one with [New]; it
// is safe for concurrent use.
type Transport struct {
	options  Options
	fallback policy.Transporter
	own      *http.Client // the fallback when it is ours, else nil

	mu     sync.Mutex
	hosts  map[address]*host // never shrinks: a client speaks to few; guarded by mu
	idle   int               // connections in all hosts' pools; guarded by mu
	expiry *time.Timer       // closes connections that were idle for too long; nil while none is; guarded by mu
	closed bool              // nothing is kept any more; guarded by mu
}

var _ policy.Transporter = (*Transport)(nil)

// New returns a transport. It opens nothing.
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

// Do sends a request, once, and returns the answer with its body read. It
// implements [policy.Transporter].
func (t *Transport) Do(r *http.Request) (*http.Response, error) {
	h := t.host(r)
	if h == nil {
		return t.fallback.Do(r)
	}
	if stream, err := unknownLength(r); stream != nil {
		return t.fallback.Do(stream)
	} else if err != nil {
		_ = r.Body.Close() // all that matters of it was read
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
	answer, err := t.send(r.Context(), h, whole)
	if err != nil {
		return nil, err
	}
	answer.Request = r
	return answer, nil
}

// send makes one exchange on a connection that is ours meanwhile.
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
	answer, again, err := c.roundTrip(request)
	if !watch() { // abort runs or has run
		c.close()
		if err != nil {
			return nil, context.Cause(ctx)
		}
		return answer, nil
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("the exchange with %s broke off: %w", h.name, err)
	}
	if again {
		t.putIdle(h, c)
	} else {
		c.close()
	}
	return answer, nil
}

// Close closes idle connections, and from now on every other one when its request
// is done. Requests under way end as they would, and later ones still work, each
// on a connection of its own. The error is always nil.
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
