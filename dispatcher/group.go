package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// group is what the delivery of a group of jobs has beyond others. The handler is called for each
// item that is left, in this delivery or in a later one, and the message is settled once, by the
// results of all. Handlers of its items that run at once write it, under mu.
type group struct {
	delivery *delivery     // whose message has the group
	head     codec.Head    // for the handlers; that of the delivery may be changed by Save
	saving   chan struct{} // has an element while an item saves

	overdue []time.Time // when the time-outs passed of items whose handlers still run; guarded by leaseManager.mu

	mu       sync.Mutex
	current  *itemContext // of the item whose handler runs outside of an Each; nil for none; guarded by mu
	each     any          // the *each[T] that handles the items; nil if there is none; guarded by mu
	returned bool         // whether it has returned; guarded by mu
	eachErr  error        // what it returned; guarded by mu
	items    codec.Group  // encoded; Save replaces it and holds saving meanwhile; guarded by mu
	results  []jobResult  // by index; the elements are guarded by mu
	failure  string       // why the first item failed for good, as Head.Failure; guarded by mu
}

// groups is the stage that takes the body of a group apart, and records what has been done of it.
type groups struct{ passive }

func (groups) admit(v *delivery) (dec decision, refused bool) {
	if v.head.Items == 0 {
		return decision{}, false
	}
	items, err := codec.DecodeGroup(v.content(), v.head.Items)
	if err != nil {
		return v.unreadable(err), true
	}
	g := &group{delivery: v, items: items, head: v.head, saving: make(chan struct{}, 1), results: make([]jobResult, len(items)), failure: v.head.Failure}
	for i := range g.results {
		switch {
		case v.head.Done.Has(i):
			g.results[i].state = jobDone
		case v.head.Failed.Has(i):
			g.results[i] = jobResult{state: jobFailed, reason: reasonOf(v.head.Failure)}
		}
	}
	v.running.group = g
	v.dispatcher.leases.setProgress(&v.lease, g.withProgress) // rides on the renewals from here on
	return decision{}, false
}

// decided records what was done in the head, which the settlement sends. It is late, so that it includes
// all that the decision is based on: an Each that middleware has left behind may still handle items.
func (groups) decided(v *delivery, _ decision) {
	if v.running.group != nil {
		v.running.group.recordProgress(&v.head)
	}
}

func (g *group) resultOf(i int) jobResult {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.results[i]
}

func (g *group) item(i int) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.items[i]
}

func (g *group) set(i int, s jobResult) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.results[i] = s
	if s.state == jobFailed && g.failure == "" {
		g.failure = codec.ShortFailure(string(s.reason) + " " + ItemError{i, s.err}.Error())
	}
}

func reasonOf(failure string) poison.Reason {
	switch reason, _, _ := strings.Cut(failure, " "); poison.Reason(reason) {
	case poison.ReasonAttempts, poison.ReasonUndecodable:
		return poison.Reason(reason)
	}
	return poison.ReasonRejected
}

// undo forgets what became of the chosen items in this delivery, so that they are left.
func (g *group) undo(chosen func(jobResult) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, s := range g.results {
		if s.now && chosen(s) {
			g.results[i] = jobResult{}
		}
	}
	g.failure = g.head.Failure
}

// setCurrent notes the item whose handler runs, or that none does.
func (g *group) setCurrent(ctx *itemContext) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.current = ctx
}

// takenOver reports whether an [Each] handles the items.
func (g *group) takenOver() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.each != nil
}

// eachResult returns whether the [Each] has returned that handled the items, and what: middleware may
// have left it behind.
func (g *group) eachResult() (returned bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.returned, g.eachErr
}

// finishedBy notes what the [Each] returns that handled the items, and returns it.
func (g *group) finishedBy(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.eachErr, g.returned = err, true
	return err
}

// takeOver lets an [Each] handle the items, if it was called with the item whose handler runs. It may
// do so again, for what is not done.
func (g *group) takeOver(each any, first int) error {
	g.mu.Lock()
	current, before := g.current, g.each
	if current == nil || current.item != first {
		g.mu.Unlock()
		return errLateEach
	}
	if before == nil {
		g.each = each
	}
	if g.each == each {
		g.returned = false
	}
	g.mu.Unlock()
	switch before {
	case nil:
		current.withoutTimeout()
	case each: // middleware tries again
		g.undo(func(s jobResult) bool { return !s.state.done() })
	default:
		g.undo(func(jobResult) bool { return true })
		return errTwoEach
	}
	return nil
}

// progress returns the items that are done and those that failed for good, with the first failure.
func (g *group) progress() (done, failed codec.ItemSet, failure string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	done = codec.NewItemSet(len(g.results), func(i int) bool { return g.results[i].state.done() })
	failed = codec.NewItemSet(len(g.results), func(i int) bool { return g.results[i].state == jobFailed })
	return done, failed, g.failure
}

// withProgress returns the text of the message with what has been done of its group. A renewal sends
// it instead of the text, which it must resend anyway. Without room for the record the text stays
// as it is.
func (g *group) withProgress(text string) string {
	head, body, _, err := codec.Open(text, codec.Envelope, g.delivery.dispatcher.features...)
	if err != nil {
		return text
	}
	if !g.recordProgress(&head) {
		return text
	}
	// The job has made progress: earlier lost deliveries no longer count.
	head.Settled, head.Starts = max(g.delivery.queued.DequeueCount-1, 0), 0
	recorded, err := codec.Seal(head, body, codec.Envelope)
	if err != nil || queue.CheckRequest(recorded, 0) != nil {
		return text
	}
	return recorded
}

// recordProgress records in the head what has been done of the group, and reports whether that is
// more than it said.
func (g *group) recordProgress(head *codec.Head) (changed bool) {
	done, failed, failure := g.progress()
	if done == head.Done && failed == head.Failed {
		return false
	}
	head.Done, head.Failed, head.Failure = done, failed, failure
	return true
}

// err returns the error of the group with those of the items that are chosen, or nil if none is.
func (g *group) err(chosen func(jobResult) bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := &GroupError{Items: len(g.results)}
	none := true
	for i, s := range g.results {
		if !chosen(s) {
			continue
		}
		none = false
		switch {
		case s.err != nil:
			e.Errors = append(e.Errors, ItemError{i, s.err})
		case s.state == jobFailed:
			e.Failed++
			_, e.Before, _ = strings.Cut(g.head.Failure, " ")
		case s.state == jobLeft:
			e.Left++
		}
	}
	if none {
		return nil
	}
	return e
}

// worked reports whether its handler had another result than a failure in this delivery.
func (s jobResult) worked() bool {
	switch s.state {
	case jobLeft, jobRetried:
		return false
	case jobFailed:
		return s.now && s.reason == poison.ReasonRejected
	case jobSnoozed: // without a handler if it was postponed, or is left to a newer worker
		return s.now && !s.newer && !s.said.postponed()
	}
	return s.now
}

// postponed reports whether items were postponed in this delivery, and no handler was called.
func (g *group) postponed() (found bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.results {
		if !s.now {
			continue
		}
		if s.state != jobSnoozed || !s.said.postponed() {
			return false
		}
		found = true
	}
	return found
}

// unsuccessful chooses everything but success.
func unsuccessful(s jobResult) bool { return s.state != jobDone }

// reportable chooses what is reported: neither what was interrupted nor a snooze, unless the item is
// left to a newer worker.
func reportable(s jobResult) bool {
	switch s.state {
	case jobDone, jobLeft:
		return false
	case jobSnoozed:
		return s.newer
	}
	return true
}

// result returns what became of the items together. An item that is to be handled again decides before
// one that is left, then one that was snoozed, then one that failed for good: the first of this delivery,
// if there is one.
func (g *group) result() result {
	all := g.err(reportable)
	g.mu.Lock()
	defer g.mu.Unlock()
	r := result{jobResult: jobResult{state: jobDropped}, all: all, reported: all, expiring: all}
	succeeded := false
	for _, one := range g.results {
		if rank, best := one.state.rank(), r.state.rank(); rank > best || one.state == jobFailed && r.state == jobFailed && one.now && !r.now {
			r.jobResult = one
		}
		succeeded = succeeded || one.state == jobDone && one.now
		r.worked = r.worked || one.worked()
	}
	r.undone = !r.state.done()
	// Of an item that was done before the head does not say whether it was discarded.
	r.handled = succeeded && !r.undone
	return r
}

// callItems calls the handler for each item that is left, one after the other. If it is an [Each],
// its first call handles all.
func (g *group) callItems() error {
	for i := range g.results {
		if g.beginsNoItem() || g.takenOver() {
			break
		}
		if g.resultOf(i).state == jobLeft {
			g.callItem(i)
		}
	}
	return g.err(unsuccessful)
}

// beginsNoItem reports whether the items that are left wait for a later delivery: the context has
// ended, or the slot was given to another.
func (g *group) beginsNoItem() bool {
	return g.delivery.running.ctx.Context.Err() != nil || g.delivery.running.slot.Load() != slotTaken
}

// callItem calls the handler for an item, inside the interceptors, and records what became of it.
func (g *group) callItem(item int) {
	h, ok := g.beginItem(item)
	if !ok {
		return
	}
	v := g.delivery
	ctx := newItemContext(&v.running.ctx, v, item, v.timeoutOf(h))
	g.setCurrent(ctx)
	begin := time.Now()
	call := func() error { return v.intercept(ctx, v.dispatcher.options.Interceptors, h, item) }
	contained(call, func(err error) {
		cause := ctx.end()
		g.setCurrent(nil)
		if g.takenOver() {
			g.finishEach(err)
			return
		}
		g.itemReturned(item, err, cause, time.Since(begin))
	})
}

// beginItem decodes an item. One that cannot be decoded has failed for good, unless a newer worker
// can.
func (g *group) beginItem(item int) (h handling, ok bool) {
	h, err := g.delivery.job.decodeItem(item)
	if err == nil {
		return h, true
	}
	undecodable := jobResult{state: jobFailed, now: true, err: err, reason: poison.ReasonUndecodable}
	if errors.Is(err, codec.ErrNewer) {
		undecodable = jobResult{state: jobSnoozed, now: true, err: err, newer: true}
	}
	g.set(item, undecodable)
	return nil, false
}

// itemReturned records what became of an item whose handler returned err when its context had ended
// with the cause. One that was interrupted has not failed and is left, unless its time-out had passed
// before.
func (g *group) itemReturned(item int, err, cause error, took time.Duration) {
	v := g.delivery
	overdue := errors.Is(cause, ErrTimeout)
	s := v.classify(err, explicitResult(err), v.running.ctx.Context.Err() != nil && !overdue)
	s.newer = s.state == jobSnoozed && errors.Is(err, codec.ErrNewer)
	if err != nil && overdue {
		s.err = &overdueError{took, err}
	}
	g.set(item, s)
}

// finishEach applies what was returned outside of an [Each] that had handled the items. If that is
// another result than its own, it is the result of all that are not done, and an error in place of
// success that of all. An item that was left because the context ended has no result.
func (g *group) finishEach(err error) {
	returned, own := g.eachResult()
	same := returned && sameResult(err, own)
	replaced := func(s jobResult) bool { return returned && own == nil || !s.state.done() }
	var items []int
	for i := range g.results {
		s := g.resultOf(i)
		if uncalled := s.state == jobLeft && !s.now; uncalled && !g.beginsNoItem() || s.now && !same && replaced(s) {
			items = append(items, i)
		}
	}
	if !same {
		g.undo(replaced)
	}
	for _, i := range items {
		g.itemReturned(i, err, nil, 0)
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
func (g *group) eachItem(ctx context.Context, each any, first, concurrency int, handle func(ctx context.Context, item int)) error {
	if err := g.takeOver(each, first); err != nil {
		return err
	}
	var running sync.WaitGroup
	slots := make(chan struct{}, concurrency)
	for i := range g.results {
		if g.resultOf(i).state != jobLeft {
			continue
		}
		slots <- struct{}{}
		if ctx.Err() != nil || g.beginsNoItem() {
			break
		}
		running.Go(func() {
			defer func() { <-slots }()
			handle(ctx, i)
		})
	}
	running.Wait()
	if ctx.Err() != nil && g.delivery.running.ctx.Context.Err() == nil { // middleware ended the context
		err := fmt.Errorf("its handler was not called: %w", context.Cause(ctx))
		for i := range g.results {
			if g.resultOf(i).state == jobLeft {
				g.itemReturned(i, err, nil, 0)
			}
		}
	}
	return g.finishedBy(g.err(unsuccessful))
}

// handleItem calls the handler for an item of an [Each], and records what became of it.
func (g *group) handleItem(ctx context.Context, item int, h handling, call func(context.Context) error) {
	c := newItemContext(ctx, g.delivery, item, g.delivery.timeoutOf(h))
	begin := time.Now()
	contained(func() error { return call(c) }, func(err error) {
		g.itemReturned(item, err, c.end(), time.Since(begin))
	})
}
