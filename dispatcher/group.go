package dispatcher

import (
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
