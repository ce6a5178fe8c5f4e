package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/poison"
)

// callItems calls the handler for each item that is left, one after the other. If it is an [Each],
// its first call handles all.
func (v *delivery) callItems() error {
	g := v.group
	for i := range g.statuses {
		if v.beginsNoItem() || g.takenOver() {
			break
		}
		if g.status(i).state == itemLeft {
			v.callItem(i)
		}
	}
	return g.err(unsuccessful)
}

// beginsNoItem reports whether the items that are left wait for a later delivery: the context has
// ended, or the slot was given to another.
func (v *delivery) beginsNoItem() bool {
	return v.context.Context.Err() != nil || v.slot.Load() != slotTaken
}

// callItem calls the handler for an item, inside the interceptors, and records what became of it.
func (v *delivery) callItem(item int) {
	h, ok := v.beginItem(item)
	if !ok {
		return
	}
	ctx := v.newItemContext(v.ctx, item, v.timeoutOf(h))
	v.group.setCurrent(ctx)
	begin := time.Now()
	call := func() error { return v.intercept(ctx, v.dispatcher.options.Interceptors, h, item) }
	contained(call, func(err error) {
		cause := ctx.end()
		v.group.setCurrent(nil)
		if v.group.takenOver() {
			v.finishEach(err)
			return
		}
		v.itemReturned(item, err, cause, time.Since(begin))
	})
}

// beginItem decodes an item. One that cannot be decoded has failed for good, unless a newer worker
// can.
func (v *delivery) beginItem(item int) (h handling, ok bool) {
	h, err := v.job.decodeItem(item)
	if err == nil {
		return h, true
	}
	status := itemStatus{state: itemFailed, now: true, err: err, reason: poison.ReasonUndecodable}
	if errors.Is(err, codec.ErrNewer) {
		status.state, status.reason = itemSnoozed, ""
	}
	v.group.set(item, status)
	return nil, false
}

// itemReturned records what became of an item whose handler returned err when its context had ended
// with the cause. One that was interrupted has not failed and is left, unless its time-out had passed
// before.
func (v *delivery) itemReturned(item int, err, cause error, took time.Duration) {
	s := itemStatus{now: true, err: err}
	said := explicitResult(err)
	interrupted := v.context.Context.Err() != nil && !errors.Is(cause, ErrTimeout)
	if err != nil && errors.Is(cause, ErrTimeout) {
		s.err = &overdueError{took, err}
	}
	switch {
	case err == nil:
		s.state = itemDone
	case interrupted && (said == nil || said.outcome == Retried || said.outcome == Snoozed || errors.Is(err, context.Canceled)):
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

// finishEach applies what was returned outside of an [Each] that had handled the items. If that is
// another result than its own, it is the result of all that are not done, and an error in place of
// success that of all. An item that was left because the context ended has no result.
func (v *delivery) finishEach(err error) {
	g := v.group
	returned, own := g.result()
	same := returned && sameResult(err, own)
	replaced := func(s itemStatus) bool { return returned && own == nil || !s.state.done() }
	var items []int
	for i := range g.statuses {
		s := g.status(i)
		if uncalled := s.state == itemLeft && !s.now; uncalled && !v.beginsNoItem() || s.now && !same && replaced(s) {
			items = append(items, i)
		}
	}
	if !same {
		g.undo(replaced)
	}
	for _, i := range items {
		v.itemReturned(i, err, nil, 0)
	}
}

// sameResult reports whether err is the error that an [Each] returned, or wraps it and asks for
// nothing else.
func sameResult(err, own error) bool {
	if err == nil || own == nil {
		return err == own //nolint:errorlint // both are nil
	}
	return errors.Is(err, own) && explicitResult(err) == explicitResult(own)
}

// errTwoEach means that what one Each has done another does not know of.
var errTwoEach = errors.New("several handlers made by Each were called for one message: call all of them inside one Each")

var errLateEach = errors.New("a handler made by Each was called after the one around it had returned, or with the message of another item")

// eachItem handles the items that are left for an [Each], as many at once as said. First is the item
// of the message with which it was called.
func (v *delivery) eachItem(ctx context.Context, each any, first, concurrency int, handle func(ctx context.Context, item int)) error {
	g := v.group
	if err := g.takeOver(each, first); err != nil {
		return err
	}
	var running sync.WaitGroup
	slots := make(chan struct{}, concurrency)
	for i := range g.statuses {
		if g.status(i).state != itemLeft {
			continue
		}
		slots <- struct{}{}
		if ctx.Err() != nil || v.beginsNoItem() {
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
	return g.finishedBy(g.err(unsuccessful))
}

// handleItem calls the handler for an item of an [Each], and records what became of it.
func (v *delivery) handleItem(ctx context.Context, item int, h handling, call func(context.Context) error) {
	c := v.newItemContext(ctx, item, v.timeoutOf(h))
	begin := time.Now()
	contained(func() error { return call(c) }, func(err error) {
		v.itemReturned(item, err, c.end(), time.Since(begin))
	})
}
