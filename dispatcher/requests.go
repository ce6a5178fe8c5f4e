package dispatcher

import (
	"context"
	"sync/atomic"
)

// requests is the parent context of settlements and renewals. It outlives the stop of the
// worker, because handled messages are still deleted. It ends in two steps: first requests in
// flight are cancelled while new ones still work, so that a handler that returns at the last
// moment is settled; then all are.
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

// context returns the parent context of new requests.
func (r *requests) context() context.Context { return r.current.Load().ctx }

func (r *requests) renew() *period {
	p := &period{}
	p.ctx, p.end = context.WithCancel(r.parent)
	return r.current.Swap(p)
}

// cancelCurrent cancels the requests in flight. New ones still work.
func (r *requests) cancelCurrent() { r.renew().end() }

// cancelAll cancels the requests in flight and all later ones.
func (r *requests) cancelAll() { r.current.Load().end() }
