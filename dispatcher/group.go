package dispatcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/keyed"
	"github.com/millrace/millrace/internal/request"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// group is the part that only the delivery of a group of jobs has. The handler is called for each
// item that is left, in this delivery or in a later one, and the message is settled once, by the
// results of all. Handlers of its items that run at once write it, under mu.
type group struct {
	delivery *delivery     // of the message with the group
	head     envelope.Head // as delivered; Save may change the head of the delivery
	saving   chan struct{} // has an element while an item saves

	overdue []time.Time // when the time-outs passed of items whose handlers still run; guarded by leaseManager.mu

	mu       sync.Mutex
	current  *itemContext   // of the item that is handled outside of an EachItem; may be nil; guarded by mu
	each     any            // the *each[T] that handles the items; may be nil; guarded by mu
	returned bool           // whether it has returned; guarded by mu
	eachErr  error          // the error it returned; guarded by mu
	items    envelope.Group // encoded; Save replaces it and holds saving meanwhile; guarded by mu
	results  []jobResult    // by index; the elements are guarded by mu
	failure  string         // why the first item failed for good, as Head.Failure; guarded by mu

	turns  turns
	closed bool // the delivery is decided on, and its head and text belong to the settlement; guarded by mu
}

// turns notes the items that were started in the present round. After a lost start each item is
// recorded before it starts, so that the next worker begins behind the one that was running. When
// all items that are left have had their turn, a new round begins. Whoever holds saving writes it.
type turns struct {
	recorded bool // whether starts of items are recorded, because a start of the group was lost
	alone    bool // whether one item runs at a time, because this has happened again; constant
	started  []bool
	now      []bool      // of them, those of this delivery
	failed   atomic.Bool // whether a start could not be recorded; then no other begins
}

// groups is the stage that takes the body of a group apart, and records its progress.
type groups struct{ passive }

func (groups) admit(v *delivery) (dec decision, refused bool) {
	if v.head.Items == 0 {
		return decision{}, false
	}
	items, err := envelope.DecodeGroup(v.content(), v.head.Items)
	if err != nil {
		return unreadable(&v.opened, err), true
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
	if v.admission.recorded {
		g.turns.recorded, g.turns.alone = true, v.head.Started != ""
		g.turns.started, g.turns.now = make([]bool, len(items)), make([]bool, len(items))
		for i := range items {
			g.turns.started[i] = v.head.Started.Has(i)
		}
	}
	v.running.group = g
	v.dispatcher.leases.setProgress(&v.lease, g.withProgress) // rides on the renewals from here on
	return decision{}, false
}

// decided records the progress in the head, which the settlement sends. It does so as late as
// possible: if middleware has left an EachItem behind, items may still end.
func (groups) decided(v *delivery, _ decision) {
	if g := v.running.group; g != nil {
		g.recordProgress(&v.head)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.closed = true
	}
}

func (g *group) resultOf(i int) jobResult {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.results[i]
}

func (g *group) set(i int, s jobResult) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.results[i] = s
	g.noteFailure(i, s)
}

// noteFailure keeps the failure of the first item that has failed for good. Requires mu.
func (g *group) noteFailure(i int, s jobResult) {
	if s.state == jobFailed && g.failure == "" {
		g.failure = envelope.ShortFailure(string(s.reason) + " " + itemText(i, s.err))
	}
}

func reasonOf(failure string) poison.Reason {
	switch reason, _, _ := strings.Cut(failure, " "); poison.Reason(reason) {
	case poison.ReasonAttempts, poison.ReasonUndecodable:
		return poison.Reason(reason)
	}
	return poison.ReasonRejected
}

// undo forgets the results of the chosen items in this delivery, so that they are left.
func (g *group) undo(chosen func(item int, s jobResult) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failure = g.head.Failure
	for i, s := range g.results {
		if s.now && chosen(i, s) {
			g.results[i] = jobResult{}
		} else if s.now {
			g.noteFailure(i, s)
		}
	}
}

// setCurrent notes the item that is being handled; nil says that there is no such item.
func (g *group) setCurrent(ctx *itemContext) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.current = ctx
}

// takenOver reports whether an [EachItem] handles the items.
func (g *group) takenOver() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.each != nil
}

// finishedBy notes the error of the [EachItem] that handled the items, and returns it.
func (g *group) finishedBy(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.eachErr, g.returned = err, true
	return err
}

// takeOver lets an [EachItem] handle the items, if it was called with the current item. It may do so
// again, for the items that are not done.
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
		g.undo(func(_ int, s jobResult) bool { return !s.state.done() })
	default:
		g.undo(func(int, jobResult) bool { return true })
		return errTwoEach
	}
	return nil
}

// withProgress returns the text of the message with the progress of its group. A renewal sends it
// instead of the text, which it must resend anyway. Without room for the record the text stays as
// it is.
func (g *group) withProgress(text string) string {
	head, body, _, err := envelope.Open(text, codec.Envelope, g.delivery.dispatcher.features...)
	if err != nil {
		return text
	}
	if !g.recordProgress(&head) {
		return text
	}
	g.delivery.progressed(&head)
	recorded, err := envelope.Seal(head, body, codec.Envelope)
	if err != nil || driver.CheckRequest(recorded, 0) != nil {
		return text
	}
	return recorded
}

// recordProgress records the progress of the group in the head, and reports whether that changed
// the head.
func (g *group) recordProgress(head *envelope.Head) (changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	done := envelope.NewItemSet(len(g.results), func(i int) bool { return g.results[i].state.done() })
	failed := envelope.NewItemSet(len(g.results), func(i int) bool { return g.results[i].state == jobFailed })
	if done == head.Done && failed == head.Failed {
		return false
	}
	head.Done, head.Failed, head.Failure = done, failed, g.failure
	return true
}

// err returns the error of the group with the errors of the chosen items, or nil if no item is
// chosen.
func (g *group) err(chosen func(jobResult) bool) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := &GroupError{Items: len(g.results), Errors: map[int]error{}}
	for i, s := range g.results {
		switch {
		case !chosen(s):
		case s.err != nil:
			e.Errors[i] = s.err
		case s.state == jobFailed:
			e.Failed++
			_, e.Before, _ = strings.Cut(g.head.Failure, " ")
		case s.state == jobLeft:
			e.Left++
		}
	}
	if len(e.Errors)+e.Failed+e.Left == 0 {
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

// called reports whether the handler of an item was called in this delivery. It was not if all items
// that had their turn were postponed, or if the context ended before the first of them.
func (g *group) called() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(g.results, func(s jobResult) bool {
		return s.now && (s.state != jobSnoozed || !s.said.postponed())
	})
}

// unsuccessful chooses everything but success.
func unsuccessful(s jobResult) bool { return s.state != jobDone }

// reportable chooses the results to report: neither an interruption nor a snooze, unless the item
// is left to a newer worker.
func reportable(s jobResult) bool {
	switch s.state {
	case jobDone, jobLeft:
		return false
	case jobSnoozed:
		return s.newer
	}
	return true
}

// result combines the results of the items. An item that is to be handled again decides before one
// that is left, then one that was snoozed, then one that failed for good: the first of this
// delivery, if there is one.
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

// callItems calls the handler for each item that is left, one after the other. If it is an [EachItem],
// its first call handles all. If a handler ends the goroutine, another one goes on behind its item.
func (g *group) callItems() {
	item, returned := 0, false
	defer func() {
		if returned {
			return
		}
		if g.resultOf(item).state == jobLeft { // not its handler, but the codec
			g.itemReturned(item, errGoexit, nil, nil, 0)
		}
		var others sync.WaitGroup
		others.Go(g.callItems)
		others.Wait()
	}()
	for item = range g.inTurn() {
		if g.beginsNoItem() || g.takenOver() {
			break
		}
		if g.resultOf(item).state != jobLeft {
			continue
		}
		if !g.recordTurn(item) {
			break
		}
		g.callItem(item)
	}
	returned = true
}

// inTurn yields the items in the order of their turns: those that a worker started which was lost
// come last.
func (g *group) inTurn() iter.Seq[int] {
	return func(yield func(int) bool) {
		for _, last := range [...]bool{false, true} {
			for i := range g.results {
				if g.head.Started.Has(i) == last && !yield(i) {
					return
				}
			}
		}
	}
}

// recordTurn records in the message that an item is about to start, together with the progress so
// far, if a start of the group was lost. It returns false if that is impossible, and then the items
// that are left wait for a later delivery.
func (g *group) recordTurn(item int) bool {
	v, t := g.delivery, &g.turns
	if !t.recorded {
		return true
	}
	ctx := v.running.ctx.Context
	select {
	case g.saving <- struct{}{}:
		defer func() { <-g.saving }()
	case <-ctx.Done():
		return false
	}
	if t.now[item] { // middleware tries again
		return true
	}
	g.mu.Lock()
	head, closed := v.head, g.closed
	g.mu.Unlock()
	if closed {
		return false
	}
	first, again := !slices.Contains(t.now, true), t.started[item]
	if again {
		clear(t.started)
	}
	t.started[item], t.now[item] = true, true
	progressed := g.recordProgress(&head)
	earlier := head.Started != ""
	head.Started = envelope.NewItemSet(len(t.started), func(i int) bool {
		return t.started[i] && !head.Done.Has(i) && !head.Failed.Has(i)
	})
	switch { // the starts of one round count as one
	case progressed:
		v.progressed(&head)
	case first && earlier && !again:
		head.Starts = max(head.Starts-1, 1)
	case again && !first:
		head.Starts = int(min(int64(head.Starts)+1, v.queued.DequeueCount-head.Settled))
		v.dispatcher.starts.nextRound(v, head.Starts)
	}
	text := v.withHead(head)
	if driver.CheckRequest(text, 0) != nil {
		return true // no room for the record
	}
	err := retry.Do(ctx, string(v.queued.ID), queue.Transient, func(context.Context) error {
		return v.dispatcher.leases.rewrite(ctx, request.CauseStart, &v.lease, text)
	})
	switch {
	case errors.Is(err, queue.ErrTooLarge):
		return true
	case err != nil: // it was reported like that of a renewal
		t.failed.Store(true)
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		v.queued.Text = text
		v.head.Settled, v.head.Starts, v.head.Started = head.Settled, head.Starts, head.Started
		v.head.Done, v.head.Failed, v.head.Failure = head.Done, head.Failed, head.Failure
	}
	return true
}

// beginsNoItem reports whether the items that are left wait for a later delivery: the context has
// ended, the slot was given to another, or a start could not be recorded.
func (g *group) beginsNoItem() bool {
	running := &g.delivery.running
	return running.ctx.Context.Err() != nil || running.slot.Load() != slotTaken || g.turns.failed.Load()
}

// callItem calls the handler for an item, inside the interceptors, and records the result.
func (g *group) callItem(item int) {
	h, ok := g.beginItem(item)
	if !ok {
		return
	}
	v := g.delivery
	ctx := newItemContext(&v.running.ctx, v, item, v.timeoutOf(h), nil)
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
		g.itemReturned(item, err, explicitResult(err), cause, time.Since(begin))
	})
}

// beginItem decodes an item. One that cannot be decoded has failed for good, unless a newer worker
// can. If the codec panics, it has failed as if its handler had.
func (g *group) beginItem(item int) (h handling, ok bool) {
	h, err := g.delivery.job.decodeItem(item)
	if err == nil {
		return h, true
	}
	if panicked := (*HookError)(nil); errors.As(err, &panicked) {
		g.itemReturned(item, err, nil, nil, 0)
		return nil, false
	}
	undecodable := jobResult{state: jobFailed, now: true, err: err, reason: poison.ReasonUndecodable}
	if errors.Is(err, codec.ErrNewer) {
		undecodable = jobResult{state: jobSnoozed, now: true, err: err, newer: true}
	}
	g.set(item, undecodable)
	return nil, false
}

// itemReturned records the result of an item after its handler returned err. Said is the request in
// err, and cause is why the item's context had ended, if it had. One that was interrupted has not
// failed and is left, unless its time-out had passed before.
func (g *group) itemReturned(item int, err error, said *resultError, cause error, took time.Duration) {
	v := g.delivery
	overdue := errors.Is(cause, ErrTimeout)
	s := classify(&v.opened, err, said, v.running.ctx.Context.Err() != nil && !overdue)
	s.newer = s.state == jobSnoozed && errors.Is(err, codec.ErrNewer)
	if err != nil && overdue {
		s.err = &overdueError{took, err}
	}
	g.set(item, s)
}

// finishEach applies the result of the middleware around an [EachItem] that had handled the items. If
// it differs from the result of the EachItem, it counts for all items that are not done, and an error
// in place of success counts for all items. An item that was left because the context ended has no
// result.
func (g *group) finishEach(err error) {
	said := explicitResult(err)
	g.mu.Lock()
	returned, own := g.returned, g.eachErr // not returned if middleware left it behind
	g.mu.Unlock()
	same := returned && said == explicitResult(own) && errors.Is(err, own) // it may wrap its own
	same = same || returned && g.replaceRequests(own, err)
	replaced := func(s jobResult) bool { return returned && own == nil || !s.state.done() }
	var items []int
	for i := range g.results {
		s := g.resultOf(i)
		if uncalled := s.state == jobLeft && !s.now; uncalled && !g.beginsNoItem() || s.now && !same && replaced(s) {
			items = append(items, i)
		}
	}
	if !same {
		g.undo(func(_ int, s jobResult) bool { return replaced(s) })
	}
	for _, i := range items {
		g.itemReturned(i, err, said, nil, 0)
	}
}

// replaceRequests applies the result of middleware that has replaced the error of its [EachItem] by
// another *GroupError: the request in each item's error counts for that item. It returns false for
// any other result.
func (g *group) replaceRequests(own, err error) bool {
	var before, after *GroupError
	if !errors.As(own, &before) || !errors.As(err, &after) || before == after {
		return false
	}
	if explicitResult(err) != explicitResult(after) { // a request for all items around it
		return false
	}
	for _, item := range slices.Sorted(maps.Keys(after.Errors)) {
		if item < 0 || item >= len(g.results) {
			continue
		}
		was, said := g.resultOf(item), explicitResult(after.Errors[item])
		if was.now && !was.state.done() && was.said != said {
			g.undo(func(i int, _ jobResult) bool { return i == item })
			g.itemReturned(item, after.Errors[item], said, nil, 0)
		}
	}
	return true
}

// errTwoEach means that one EachItem does not know which items another has handled.
var errTwoEach = errors.New("several handlers made by EachItem were called for one message: call all of them inside one EachItem")

// errKeyedEach is the result of every job, in a group or not: the first one shows the mistake.
var errKeyedEach = errors.New("a handler made by EachItem was called inside the middleware of package perkey, which would let items with one key run at once: " +
	"put the middleware inside, as in listener.EachItem(perkey.Wrap(keys, handle), n)")

var errLateEach = errors.New("a handler made by EachItem was called after the one around it had returned, or with the message of another item")

// maxWaiting is how many items of a group wait for their keys at most. Each has a goroutine.
const maxWaiting = 1024

// eachCall is one call of an [EachItem].
type eachCall struct {
	keyed.Each
	begun chan struct{} // has an element for each item that has begun and not ended

	mu      sync.Mutex
	over    bool          // whether no further item begins; guarded by mu
	batched int           // how many items wait in batches; guarded by mu
	stalled chan struct{} // closed when only a batch that begins lets items go on; may be nil; guarded by mu
}

// enterBatch notes that an item waits in a batch. The channel is closed when all items with a place
// do so and no other item can begin.
func (e *eachCall) enterBatch() (stalled <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batched++
	if e.stalled == nil {
		e.stalled = make(chan struct{})
	}
	stalled = e.stalled
	e.checkStalled()
	return stalled
}

func (e *eachCall) leaveBatch() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batched--
}

// leavePlace gives a place to the next item.
func (e *eachCall) leavePlace() {
	<-e.Places
	e.mu.Lock()
	defer e.mu.Unlock()
	e.checkStalled()
}

// end notes that no further item begins.
func (e *eachCall) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	e.checkStalled()
}

// checkStalled requires mu.
func (e *eachCall) checkStalled() {
	full := len(e.Places) == cap(e.Places) || len(e.begun) == cap(e.begun)
	if e.stalled != nil && e.batched >= len(e.Places) && (full || e.over) {
		close(e.stalled)
		e.stalled = nil
	}
}

// eachItem handles the items that are left for an [EachItem], up to concurrency of them at the same
// time. First is the item of the message that it was called with.
func (g *group) eachItem(ctx context.Context, each any, first, concurrency int, handle func(ctx context.Context, item int, in *eachCall)) error {
	if err := g.takeOver(each, first); err != nil {
		return err
	}
	if g.turns.alone {
		concurrency = 1
	}
	var running sync.WaitGroup
	in := &eachCall{Each: keyed.Each{Places: make(chan struct{}, concurrency)}, begun: make(chan struct{}, concurrency+maxWaiting)}
	for i := range g.inTurn() {
		if g.resultOf(i).state != jobLeft {
			continue
		}
		if g.turns.alone {
			running.Wait()
		}
		in.begun <- struct{}{}
		in.Places <- struct{}{}
		if ctx.Err() != nil || g.beginsNoItem() || !g.recordTurn(i) {
			in.leavePlace()
			break
		}
		running.Go(func() {
			defer func() { <-in.begun }()
			handle(ctx, i, in)
		})
	}
	in.end()
	running.Wait()
	if ctx.Err() != nil && g.delivery.running.ctx.Context.Err() == nil { // middleware ended the context
		err := fmt.Errorf("its handler was not called: %w", context.Cause(ctx))
		said := explicitResult(err)
		for i := range g.results {
			if g.resultOf(i).state == jobLeft {
				g.itemReturned(i, err, said, nil, 0)
			}
		}
	}
	return g.finishedBy(g.err(unsuccessful))
}

// handleItem calls the handler for an item of an [EachItem], and records the result. The item has a
// place.
func (g *group) handleItem(ctx context.Context, item int, in *eachCall, h handling, call func(context.Context) error) {
	c := newItemContext(ctx, g.delivery, item, g.delivery.timeoutOf(h), in)
	begin := time.Now()
	contained(func() error { return call(c) }, func(err error) {
		defer c.Leave() // not before: the next item records what this one has come to
		g.itemReturned(item, err, explicitResult(err), c.end(), time.Since(begin))
	})
}

// EachItem returns a handler that handles several jobs of a group at the same time: producer.SendGroup
// sends several jobs in one message. The concurrency applies to one group, and other slots have
// their own jobs. With less than 1, or a nil handler, it returns nil, which is refused like any
// missing handler. A handler that is not made by EachItem handles the jobs of a
// group one after the other. A job that is in no group is handled alike with EachItem and without.
//
// Every item of a group is a job of its own for the handler: it has its own message, with Item and
// Items set, context, time-out and result, and its failure harms no other. The message of the group
// has one slot, one lease and one settlement:
//
//   - It is deleted when every item has succeeded or was discarded.
//   - An item that failed, or asked for [Retry], makes it come again, for the remaining items only:
//     finished items are recorded in the message. The attempts are counted per message.
//   - An item that asked for [Snooze], or that was interrupted, makes it come again without an
//     attempt, unless another one failed.
//   - An item that asked for [Poison], cannot be decoded, or failed at the last attempt is not
//     handled any more. When all others are done the message is moved to the poison queue, once,
//     and a redrive handles these items only.
//
// The delay comes from the first item with the deciding result.
//
// Progress is recorded whenever the text must be sent anyway: by renewals, by Message.Save and when
// the message is given back. If a worker dies, the items since the last renewal are therefore
// repeated. From then on the start of each item is recorded too, by an update for each, and the
// next worker begins behind the items that were running: an item that kills its worker holds up no
// other. If another worker dies, the items run one at a time until the group is settled.
//
// EachItem belongs inside of [All] and outside of [Batch], which then collects items. It belongs outside
// of the middleware of package perkey, and fails inside of it. Code around it, such as interceptors
// and [Middleware], sees a group once, as its first remaining item; without EachItem it sees every item.
// If it returns another result than EachItem did, this result counts for all items that are not done,
// and an error in place of nil counts for all items that were handled. If it returns another
// *[GroupError] in place of that of EachItem, the request in each item's error counts for that item.
// Items that were not handled because the context ended are handled at a later delivery in any
// case.
func EachItem[T any](h Handler[T], concurrency int) Handler[T] {
	if h == nil || concurrency < 1 {
		return nil
	}
	e := &each[T]{handler: h, concurrency: concurrency}
	return e.handle
}

// each handles the items of groups.
type each[T any] struct {
	handler     Handler[T]
	concurrency int
}

func (e *each[T]) handle(ctx context.Context, m *Message[T]) error {
	if keyed.IsInside(ctx) {
		return errKeyedEach
	}
	if m.delivery == nil || m.delivery.running.group == nil {
		return e.handler(ctx, m)
	}
	v, g := m.delivery, m.delivery.running.group
	return g.eachItem(ctx, e, m.Item, e.concurrency, func(ctx context.Context, item int, in *eachCall) {
		one := &typedItem[T]{job: v, message: m}
		if item != m.Item {
			decoded := false
			defer func() {
				if !decoded { // the codec may end the goroutine
					in.leavePlace()
				}
			}()
			h, ok := g.beginItem(item)
			if !ok {
				return
			}
			decoded, one = true, h.(*typedItem[T])
		}
		g.handleItem(ctx, item, in, one, func(ctx context.Context) error { return e.handler(ctx, one.message) })
	})
}

// typedItem is an item of a group with jobs of type T. It implements handling.
type typedItem[T any] struct {
	job     *typedJob[T]
	message *Message[T]
}

func (i *typedItem[T]) ownTimeout() time.Duration { return i.job.timeoutOf(i.message) }

func (i *typedItem[T]) callHandler(ctx context.Context) error {
	return i.job.jobs.Handler(ctx, i.message)
}

func (v *typedJob[T]) decodeItem(item int) (handling, error) {
	g := v.running.group
	g.mu.Lock()
	encoded := bytes.Clone(g.items[item]) // the handler may change it in place, and another item may save
	g.mu.Unlock()
	body, err := v.decodeJob(encoded)
	if err != nil {
		return nil, err
	}
	return &typedItem[T]{v, &Message[T]{Delivery: v.describedItem(item), Body: body, delivery: v}}, nil
}

// saveItem implements Message.Save for an item of a group.
func (v *typedJob[T]) saveItem(ctx context.Context, item int, body T) error {
	g := v.running.group
	if item < 0 || item >= len(g.results) {
		return fmt.Errorf("the group has no item %d", item)
	}
	encoded, err := v.encode(body)
	if err != nil {
		return err
	}
	select {
	case g.saving <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-g.saving }()
	g.mu.Lock()
	items := slices.Clone(g.items)
	g.mu.Unlock()
	items[item] = bytes.Clone(encoded) // the handler may change it later
	if err := v.save(ctx, items.Encode()); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.items = items
	return nil
}

// itemContext is the context of the handler of an item. Its time-out is its own, and ends no other
// item.
type itemContext struct {
	context.Context
	delivery *delivery
	item     int
	cancel   context.CancelCauseFunc
	timeout  time.Duration // zero or less for none
	each     *eachCall     // nil outside of an EachItem
	placed   atomic.Bool   // whether it has one of its places

	mu       sync.Mutex
	timer    *time.Timer // nil without a time-out; guarded by mu
	deadline time.Time   // zero for none; guarded by mu
	overdue  time.Time   // when its time-out passed; zero if it has not; guarded by mu
}

// newItemContext returns a context for the handler of an item. In an [EachItem] the item has a place. A
// time-out of zero or less means no time-out.
func newItemContext(parent context.Context, v *delivery, item int, timeout time.Duration, in *eachCall) *itemContext {
	ctx, cancel := context.WithCancelCause(parent)
	c := &itemContext{Context: ctx, delivery: v, item: item, cancel: cancel, timeout: timeout, each: in}
	c.placed.Store(in != nil)
	c.startTimeout()
	return c
}

func (c *itemContext) startTimeout() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timeout > 0 {
		c.deadline = time.Now().Add(c.timeout)
		c.timer = time.AfterFunc(c.timeout, c.expire)
	}
}

// Each implements keyed.Item.
func (c *itemContext) Each() *keyed.Each {
	if c.each == nil {
		return nil
	}
	return &c.each.Each
}

// Leave implements keyed.Item.
func (c *itemContext) Leave() {
	c.withoutTimeout()
	if c.placed.CompareAndSwap(true, false) {
		c.each.leavePlace()
	}
}

// maxPlaceWait is how long an item waits for a place. It ends a deadlock of items that hold
// something else meanwhile, such as a semaphore of middleware.
const maxPlaceWait = time.Minute

// Enter implements keyed.Item. Middleware may have left the call behind, which then gives the place
// back here or when its item has returned.
func (c *itemContext) Enter() bool {
	if !c.placed.Load() {
		select {
		case c.each.Places <- struct{}{}:
			c.placed.Store(true)
			c.startTimeout()
		case <-time.After(maxPlaceWait):
		case <-c.Done():
		}
		if c.Context.Err() != nil || c.delivery.running.group.beginsNoItem() {
			c.Leave()
		}
	}
	return c.placed.Load()
}

// expire ends the context because the time-out has passed. A handler that then does not return is
// reported as stuck, like any other.
func (c *itemContext) expire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil { // it was stopped
		return
	}
	c.overdue = time.Now()
	c.cancel(ErrTimeout)
	c.delivery.dispatcher.leases.itemOverdue(&c.delivery.lease, c.overdue)
}

// withoutTimeout ends the time-out, because the handler turned out to handle all items.
func (c *itemContext) withoutTimeout() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
		c.timer, c.deadline = nil, time.Time{}
	}
}

// end ends the context when the handler has returned. It returns why it had ended before, if it
// had.
func (c *itemContext) end() (cause error) {
	c.withoutTimeout()
	c.mu.Lock()
	defer c.mu.Unlock()
	cause = context.Cause(c.Context)
	c.cancel(nil)
	if !c.overdue.IsZero() {
		c.delivery.dispatcher.leases.itemReturned(&c.delivery.lease, c.overdue)
	}
	return cause
}

// Deadline returns the end of the time-out.
func (c *itemContext) Deadline() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.deadline, !c.deadline.IsZero()
}

// Err returns context.DeadlineExceeded after the time-out.
func (c *itemContext) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(context.Cause(c.Context), ErrTimeout) {
		return context.DeadlineExceeded
	}
	return err
}

// Value returns the item for the key of deliveries.
func (c *itemContext) Value(key any) any {
	if key == (deliveryKey{}) {
		return c
	}
	return c.Context.Value(key)
}
