package dispatcher

import (
	"context"
	"sync/atomic"
)

// requests is the parent context of settlements and renewals. It outlives the stop of the
// worker, because what was handled is to be deleted, and ends in two steps: first what is
// on the wire is cut off while new requests still work, so that a handler that returns at
// the last moment is settled; then everything.
type requests struct {
	parent  context.Context
	current atomic.Pointer[period]
}

type period struct {
	ctx context.Context
	end context.CancelFunc
}

func (r *requests) start(parent context.Context) {
	r.parent = parent
	r.renew()
}

// context returns the context of requests that begin now.
func (r *requests) context() context.Context { return r.current.Load().ctx }

func (r *requests) renew() *period {
	p := &period{}
	p.ctx, p.end = context.WithCancel(r.parent)
	return r.current.Swap(p)
}

// cutOff ends the requests that are under way. Later ones work.
func (r *requests) cancelCurrent() { r.renew().end() }

// hangUp ends the requests that are under way, and those that come.
func (r *requests) cancelAll() { r.current.Load().end() }
