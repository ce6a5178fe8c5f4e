package dispatcher

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/request"
)

// haltTimeout is how long handlers and requests may take to return after a halt has cancelled
// them.
const haltTimeout = time.Second

// Stop begins the shutdown: messages dispatched from now on are given back, running handlers
// continue, and batches of [Batch] start without waiting for more messages.
func (d *Dispatcher) Stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.draining {
		d.draining = true
		close(d.stopping)
	}
}

// Drain shuts the dispatcher down. It lets handlers finish until ctx ends (the grace period), then
// cancels their contexts with [ErrStopping], gives their messages back, and returns when nothing
// runs any more. A handler that ignores its cancelled context for longer than SettleTimeout, or
// than a second after [Dispatcher.Halt], is abandoned and named in an [*AbandonedError]. Shared
// slots are returned, even the slots of abandoned handlers. Call Drain once, after the last call of
// Dispatch has returned.
func (d *Dispatcher) Drain(ctx context.Context) error {
	d.Stop()
	done := make(chan struct{})
	// Owned by this call, or by the abandoned handlers: it ends with the last of them.
	go func() {
		d.inFlight.Wait()
		close(done)
	}()
	ended := d.wait(ctx, done)
	d.slots.leave()
	d.workers.close()
	d.requests.cancelAll()
	d.leases.close()
	if ended {
		d.workers.join()
		return nil
	}
	return d.abandoned()
}

// wait waits for the deliveries in flight as Drain documents, and reports whether all ended.
func (d *Dispatcher) wait(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	case <-d.halted:
	}
	d.stopHandlers()
	patience := time.NewTimer(d.options.SettleTimeout)
	defer patience.Stop()
	select {
	case <-done:
		return true
	case <-patience.C:
		// Requests that still hang are cancelled, so that only handlers can be left. New
		// requests still work: a handler that returns now can have its message deleted.
		d.requests.cancelCurrent()
		if d.endsSoon(done) {
			return true
		}
	case <-d.halted:
		if d.endsSoon(done) {
			return true
		}
	}
	d.requests.cancelAll()
	return d.endsSoon(done)
}

// endsSoon reports whether everything ends within haltTimeout.
func (d *Dispatcher) endsSoon(done <-chan struct{}) bool {
	t := time.NewTimer(haltTimeout)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
		return false
	}
}

// Halt ends a drain immediately, or makes the coming one short. It may be called at any time and
// more than once.
func (d *Dispatcher) Halt() { d.halt.Do(func() { close(d.halted) }) }

func (d *Dispatcher) abandoned() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := &AbandonedError{Queue: d.queue.Name()}
	for v := d.active; v != nil; v = v.next {
		e.Messages = append(e.Messages, v.queued.ID)
	}
	if len(e.Messages) == 0 {
		return nil
	}
	return e
}

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

// context returns the parent context of new requests that do not go to a queue.
func (r *requests) context() context.Context { return r.current.Load().ctx }

// because returns the parent context of new requests to a queue, with their cause.
func (r *requests) because(c request.Cause) context.Context { return r.current.Load().by[c] }

func (r *requests) renew() *period {
	p := &period{}
	p.ctx, p.end = context.WithCancel(r.parent)
	for _, c := range request.Causes() {
		p.by = append(p.by, request.WithCause(p.ctx, c))
	}
	return r.current.Swap(p)
}

// cancelCurrent cancels the requests in flight. New ones still work.
func (r *requests) cancelCurrent() { r.renew().end() }

// cancelAll cancels the requests in flight and all later ones.
func (r *requests) cancelAll() { r.current.Load().end() }
