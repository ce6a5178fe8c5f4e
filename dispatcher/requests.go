package dispatcher

import (
	"context"
	"sync/atomic"

	"github.com/millrace/millrace/queue"
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
	by  []context.Context // ctx with each cause; made once, or each request would cost an allocation
	end context.CancelFunc
}

func (r *requests) start(parent context.Context) {
	r.parent = parent
	r.renew()
}

// context returns the parent context of new requests to what is no queue.
func (r *requests) context() context.Context { return r.current.Load().ctx }

// because returns the parent context of new requests to a queue, with their cause.
func (r *requests) because(c queue.Cause) context.Context { return r.current.Load().by[c] }

func (r *requests) renew() *period {
	p := &period{}
	p.ctx, p.end = context.WithCancel(r.parent)
	for _, c := range queue.Causes() {
		p.by = append(p.by, queue.WithCause(p.ctx, c))
	}
	return r.current.Swap(p)
}

// cancelCurrent cancels the requests in flight. New ones still work.
func (r *requests) cancelCurrent() { r.renew().end() }

// cancelAll cancels the requests in flight and all later ones.
func (r *requests) cancelAll() { r.current.Load().end() }
