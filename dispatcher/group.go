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
// results of all.
type group struct {
	head   codec.Head    // for the handlers; that of the delivery may be changed by Save
	saving chan struct{} // has an element while an item saves

	overdue []time.Time // when the time-outs passed of items whose handlers still run; guarded by leaseManager.mu

	mu       sync.Mutex
	current  *itemContext // of the item whose handler runs outside of an Each; nil for none; guarded by mu
	each     any          // the *each[T] that handles the items; nil if there is none; guarded by mu
	returned bool         // whether it has returned; guarded by mu
	eachErr  error        // what it returned; guarded by mu
	items    codec.Group  // encoded; Save replaces it and holds saving meanwhile; guarded by mu
	statuses []itemStatus // by index; the elements are guarded by mu
	failure  string       // why the first item failed for good, as Head.Failure; guarded by mu
}

type itemStatus struct {
	state  itemState
	now    bool          // in this delivery
	err    error         // with which its handler returned; nil if it succeeded or was not called
	reason poison.Reason // why it failed for good
}

type itemState uint8

const (
	itemLeft    itemState = iota // its handler was not called yet, or was interrupted
	itemDone                     // succeeded, in this delivery or in an earlier one
	itemDropped                  // discarded in this delivery
	itemRetried                  // it failed, and is handled again in a later delivery
	itemSnoozed                  // it was too early for it
	itemFailed                   // it failed for good, in this delivery or in an earlier one
)

// done reports whether an item in this state needs no handler any more, because it needs nothing.
func (s itemState) done() bool { return s == itemDone || s == itemDropped }

// openGroup takes the body apart. What has been done of the group rides on the renewals from here on.
func (v *delivery) openGroup() error {
	items, err := codec.DecodeGroup(v.content(), v.head.Items)
	if err != nil {
		return err
	}
	g := &group{items: items, head: v.head, saving: make(chan struct{}, 1), statuses: make([]itemStatus, len(items)), failure: v.head.Failure}
	for i := range g.statuses {
		switch {
		case v.head.Done.Has(i):
			g.statuses[i].state = itemDone
		case v.head.Failed.Has(i):
			g.statuses[i] = itemStatus{state: itemFailed, reason: reasonOf(v.head.Failure)}
		}
	}
	v.group = g
	v.dispatcher.leases.setProgress(&v.lease, v.withProgress)
	return nil
}

func (g *group) status(i int) itemStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.statuses[i]
}

func (g *group) item(i int) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.items[i]
}

func (g *group) set(i int, s itemStatus) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.statuses[i] = s
	if s.state == itemFailed && g.failure == "" {
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
func (g *group) undo(chosen func(itemStatus) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i, s := range g.statuses {
		if s.now && chosen(s) {
			g.statuses[i] = itemStatus{}
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

// result returns whether the [Each] has returned that handled the items, and what: middleware may
// have left it behind.
func (g *group) result() (returned bool, err error) {
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
		g.undo(func(s itemStatus) bool { return !s.state.done() })
	default:
		g.undo(func(itemStatus) bool { return true })
		return errTwoEach
	}
	return nil
}

// progress returns the items that are done and those that failed for good, with the first failure.
func (g *group) progress() (done, failed codec.ItemSet, failure string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	done = codec.NewItemSet(len(g.statuses), func(i int) bool { return g.statuses[i].state.done() })
	failed = codec.NewItemSet(len(g.statuses), func(i int) bool { return g.statuses[i].state == itemFailed })
	return done, failed, g.failure
}

// withProgress returns the text of the message with what has been done of its group. A renewal sends
// it instead of the text, which it must resend anyway. Without room for the record the text stays
// as it is.
func (v *delivery) withProgress(text string) string {
	head, body, _, err := codec.Open(text, codec.Envelope, v.dispatcher.features...)
	if err != nil {
		return text
	}
	if !v.recordProgress(&head) {
		return text
	}
	// The job has made progress: earlier lost deliveries no longer count.
	head.Settled, head.Starts = max(v.queued.DequeueCount-1, 0), 0
	recorded, err := codec.Seal(head, body, codec.Envelope)
	if err != nil || queue.CheckRequest(recorded, 0) != nil {
		return text
	}
	return recorded
}

// recordProgress records in the head what has been done of the group, and reports whether that is
// more than it said.
func (v *delivery) recordProgress(head *codec.Head) (changed bool) {
	done, failed, failure := v.group.progress()
	if done == head.Done && failed == head.Failed {
		return false
	}
	head.Done, head.Failed, head.Failure = done, failed, failure
	return true
}

// poisonedText returns the text that the poison queue keeps of the message. A redrive handles
// what is not done, so nothing else of the group is said.
func (v *delivery) poisonedText() string {
	if v.head.Items == 0 || v.body == nil {
		return v.queued.Text
	}
	body, err := v.sealed() // with what was saved
	if err != nil {
		return v.queued.Text
	}
	head := v.head
	head.Failed, head.Failure = "", ""
	text, err := codec.Seal(head, body, codec.Envelope)
	if err != nil || queue.CheckRequest(text, 0) != nil {
		return v.queued.Text
	}
	return text
}

// err returns the error of the group with those of the items that are chosen, or nil if none is.
func (g *group) err(chosen func(itemStatus) bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := &GroupError{Items: len(g.statuses)}
	none := true
	for i, s := range g.statuses {
		if !chosen(s) {
			continue
		}
		none = false
		switch {
		case s.err != nil:
			e.Errors = append(e.Errors, ItemError{i, s.err})
		case s.state == itemFailed:
			e.Failed++
			_, e.Before, _ = strings.Cut(g.head.Failure, " ")
		case s.state == itemLeft:
			e.Left++
		}
	}
	if none {
		return nil
	}
	return e
}

// worked reports whether its handler had another result than a failure in this delivery.
func (s itemStatus) worked() bool {
	switch s.state {
	case itemLeft, itemRetried:
		return false
	case itemFailed:
		return s.now && s.reason == poison.ReasonRejected
	case itemSnoozed: // without a handler if it was postponed, or is left to a newer worker
		return s.now && !errors.Is(s.err, codec.ErrNewer) && !isPostponed(s.err)
	}
	return s.now
}

// postponed reports whether items were postponed in this delivery, and no handler was called.
func (g *group) postponed() (found bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.statuses {
		if !s.now {
			continue
		}
		if s.state != itemSnoozed || !isPostponed(s.err) {
			return false
		}
		found = true
	}
	return found
}

// unsuccessful chooses everything but success.
func unsuccessful(s itemStatus) bool { return s.state != itemDone }

// reportable chooses what is reported: neither what was interrupted nor a snooze, unless the item is
// left to a newer worker.
func reportable(s itemStatus) bool {
	switch s.state {
	case itemDone, itemLeft:
		return false
	case itemSnoozed:
		return errors.Is(s.err, codec.ErrNewer)
	}
	return true
}

// results is what became of the items together.
type results struct {
	retried, snoozed, failed *itemStatus // the first of each, of this delivery if possible; nil for none
	left, done               bool        // whether there are such
	succeeded                bool        // whether an item did in this delivery
	worked                   bool        // whether a handler had another result than a failure
}

func (g *group) results() (r results) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.statuses {
		switch s.state {
		case itemLeft:
			r.left = true
		case itemDone:
			r.done = true
			r.succeeded = r.succeeded || s.now
		case itemRetried:
			if r.retried == nil {
				r.retried = &s
			}
		case itemSnoozed:
			if r.snoozed == nil {
				r.snoozed = &s
			}
		case itemFailed:
			if r.failed == nil || s.now && !r.failed.now {
				r.failed = &s
			}
		}
		r.worked = r.worked || s.worked()
	}
	return r
}

// decideGroup decides by the results of the items. The message comes again while one of them is to
// be handled again. When all others are done, it is poison if one failed for good.
func (v *delivery) decideGroup(state leaseState) decision {
	r, err := v.group.results(), v.group.err(reportable)
	unfinished := r.left || r.retried != nil || r.snoozed != nil || r.failed != nil
	// Of an item that was done before the head does not say whether it was discarded.
	handled := r.succeeded && !unfinished
	var dec decision
	switch {
	case state == expired && unfinished && v.lifeEnds(MinVisibility):
		dec = v.poisoned(poison.ReasonExpiring, err)
	case state == lost, state == expired && unfinished:
		return decision{outcome: Lost, err: errors.Join(cause(state), err), handled: handled}
	case r.retried != nil:
		if said := explicitResult(r.retried.err); said != nil {
			dec = v.later(Retried, said.delay, err)
		} else {
			dec = v.later(Retried, v.retryDelay(v.attempt(), err), err)
		}
	case r.left:
		dec = decision{outcome: GivenBack, err: err}
	case r.snoozed != nil:
		dec = v.later(Snoozed, v.snoozeDelay(r.snoozed.err), err)
	case r.failed != nil:
		dec = v.poisoned(r.failed.reason, err)
	case !r.done:
		dec = decision{outcome: Discarded, err: err}
	default:
		dec = decision{outcome: Deleted, err: err, handled: handled}
	}
	dec.worked = r.worked
	return dec
}

// snoozeDelay returns how long an item waits that was snoozed, or is left to a newer worker.
func (v *delivery) snoozeDelay(err error) time.Duration {
	if errors.Is(err, codec.ErrNewer) {
		v.forOthers = true
		return newerDelay
	}
	return explicitResult(err).delay
}

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
