package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/poison"
)

// callItems calls the handler for each item that is left, one after the other. If it is an [Each],
// its first call handles all.
func (v *delivery) callItems() error {
	g := v.group
	for i := range g.statuses {
		if v.context.Context.Err() != nil || g.each != nil {
			break
		}
		if g.status(i).state == itemLeft {
			v.callItem(i)
		}
	}
	return g.err(unsuccessful)
}

// callItem calls the handler for an item, inside the interceptors, and records what became of it.
func (v *delivery) callItem(item int) {
	h, ok := v.beginItem(item)
	if !ok {
		return
	}
	err := errGoexit
	ctx := v.newItemContext(v.ctx, item, v.timeoutOf(h))
	v.group.current = ctx
	begin := time.Now()
	defer func() {
		cause := ctx.end()
		v.group.current = nil
		if v.group.each != nil {
			v.finishEach(err)
			return
		}
		v.itemReturned(item, err, cause, time.Since(begin))
	}()
	err = contained(func() error { return v.intercept(ctx, v.dispatcher.options.Interceptors, h, item) })
}

// contained calls a handler. A panic becomes an error.
func contained(call func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = safeError("handler", caughtPanic(p))
		}
	}()
	return safeError("handler", call())
}

// beginItem decodes an item. One that cannot be decoded has failed for good, unless a newer worker
// can.
func (v *delivery) beginItem(item int) (h handling, ok bool) {
	var err error
	returned := false
	defer func() {
		if p := recover(); p != nil || !returned {
			err = newHookError(v.dispatcher.name, hook.Caught("Codec.Decode", p))
		}
		if err == nil {
			ok = true
			return
		}
		status := itemStatus{state: itemFailed, now: true, err: safeError("codec", err), reason: poison.ReasonUndecodable}
		if errors.Is(status.err, codec.ErrNewer) {
			status.state, status.reason = itemSnoozed, ""
		}
		v.group.set(item, status)
	}()
	h, err = v.job.decodeItem(item)
	returned = true
	return
}

// itemReturned records what became of an item whose handler returned err when its context had ended
// with the cause. One that was interrupted has not failed and is left.
func (v *delivery) itemReturned(item int, err, cause error, took time.Duration) {
	s := itemStatus{now: true, err: err}
	said := explicitResult(err)
	interrupted := v.context.Context.Err() != nil
	if err != nil && errors.Is(cause, ErrTimeout) {
		s.err = &overdueError{took, err}
	}
	switch {
	case err == nil:
		s.state = itemDone
	case interrupted && (said == nil || said.outcome == Retried || said.outcome == Snoozed || isCanceled(err)):
		s.state = itemLeft
	case said != nil && said.outcome == Discarded:
		s.state = itemDropped
	case said != nil && said.outcome == Poisoned:
		s.state, s.reason = itemFailed, poison.ReasonRejected
	case said != nil && said.outcome == Snoozed:
		s.state = itemSnoozed
	case v.attempt() >= v.maxAttempts():
		s.state, s.reason = itemFailed, poison.ReasonAttempts
	default:
		s.state = itemRetried
	}
	v.group.set(item, s)
}

// finishEach applies what was returned outside of an [Each] that had handled the items. If
// middleware put another result in place of its, that is the result of all that are not done.
func (v *delivery) finishEach(err error) {
	g := v.group
	if err == g.eachErr || err != nil && g.eachErr != nil && errors.Is(err, g.eachErr) { //nolint:errorlint // the same error
		return
	}
	for i := range g.statuses {
		if s := g.status(i); s.now && !s.state.done() || s.state == itemLeft {
			v.itemReturned(i, err, nil, 0)
		}
	}
}

// errTwoEach means that what one Each has done another does not know of.
var errTwoEach = errors.New("several handlers made by Each were called for one message: call all of them inside one Each")

// eachItem handles the items that are left for an [Each], as many at once as said.
func (v *delivery) eachItem(ctx context.Context, each any, concurrency int, handle func(ctx context.Context, item int)) error {
	g := v.group
	switch {
	case g.each == nil:
		g.each = each
		g.current.withoutTimeout()
	case g.each != each:
		g.undo(func(itemStatus) bool { return true })
		return errTwoEach
	default: // middleware tries again
		g.undo(func(s itemStatus) bool { return !s.state.done() })
	}
	var running sync.WaitGroup
	slots := make(chan struct{}, concurrency)
	for i := range g.statuses {
		if g.status(i).state != itemLeft {
			continue
		}
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		running.Go(func() {
			defer func() { <-slots }()
			handle(ctx, i)
		})
	}
	running.Wait()
	if ctx.Err() != nil && v.context.Context.Err() == nil { // middleware ended the context
		err := fmt.Errorf("its handler was not called: %w", context.Cause(ctx))
		for i := range g.statuses {
			if g.status(i).state == itemLeft {
				v.itemReturned(i, err, nil, 0)
			}
		}
	}
	g.eachErr = g.err(unsuccessful)
	return g.eachErr
}

// handleItem calls the handler for an item of an [Each], and records what became of it.
func (v *delivery) handleItem(ctx context.Context, item int, h handling, call func(context.Context) error) {
	err := errGoexit
	c := v.newItemContext(ctx, item, v.timeoutOf(h))
	begin := time.Now()
	defer func() { v.itemReturned(item, err, c.end(), time.Since(begin)) }()
	err = contained(func() error { return call(c) })
}
