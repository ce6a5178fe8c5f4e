package localqueue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/internal/serviceerror"
	"github.com/millrace/millrace/internal/waiting"
	"github.com/millrace/millrace/queue"
)

// committer makes changes in memory durable. A caller changes memory under the lock of its
// queue, adds the change to the current batch, and returns when that batch is committed. One
// goroutine commits: while it waits for the disk the next batch fills, so all concurrent callers
// share a commit.
//
// All changes have one order, with two consequences. A change commits together with what it
// depends on, or after it, so no result depends on something that may still be lost; a call that
// only reads waits for the newest change of what it read. And if a commit fails, everything after
// it is undone too, newest first, so that memory is again what is on disk.
type committer struct {
	store localengine.Store
	clock *clock

	// gate is held for reading by callers that change memory, from their first look at it
	// until the change is in a batch, and for writing by rollBack.
	gate        sync.RWMutex
	refuseUntil time.Time // guarded by gate; calls that need space fail until then
	refusal     error     // guarded by gate; what they fail with

	mu       sync.Mutex
	current  *batch // guarded by mu; the batch that takes new changes
	number   uint64 // guarded by mu; of current
	lastSize int    // guarded by mu; the number of changes in the last batch
	target   int    // guarded by mu; the number of changes that gather waits for; 0 if it is not waiting

	wake          chan struct{} // buffers one: there is something to commit
	targetReached chan struct{} // buffers one: the target is reached
	stop          chan struct{} // closed when no more changes will come
	stopped       chan struct{} // closed when run has returned
}

// batch is the changes of one commit, and how to undo them.
type batch struct {
	*ticket
	changes []localengine.Change
	undo    []func()      // in the order of the changes
	texts   []unsavedText // in memory until they are committed
	expired localengine.MessagesExpired
}

type unsavedText struct {
	in *queueState
	of *message
}

// ticket is how a caller waits for a batch. A nil ticket needs no waiting.
type ticket struct {
	number uint64
	done   chan struct{} // closed when the batch is committed or undone
	err    error         // why it was undone; read it only after done is closed
}

// refuseFor is how long calls that need space fail, at least, after a commit failed.
// Deletes go on meanwhile, and they free space.
const refuseFor = time.Second

// enter admits a caller that may change memory; leave must follow. For a while after a
// failed commit it refuses callers that need space, such as an enqueue.
func (c *committer) enter(space bool) error {
	c.gate.RLock()
	if space && c.refusal != nil && time.Now().Before(c.refuseUntil) {
		defer c.gate.RUnlock()
		return c.refusal
	}
	return nil
}

func (c *committer) leave() { c.gate.RUnlock() }

// newBatch returns the next batch to fill. The caller holds mu, or the committer is not
// shared yet.
func (c *committer) newBatch() *batch {
	c.number++
	return &batch{ticket: &ticket{number: c.number, done: make(chan struct{})}}
}

// add puts a change into the current batch and returns its ticket. The caller holds the
// gate for reading and the lock of what changed, so that batches have the order of the
// changes in memory. undo takes the lock itself.
func (c *committer) add(change localengine.Change, undo func()) *ticket {
	c.mu.Lock()
	b := c.append(change, undo)
	c.mu.Unlock()
	c.signal()
	return b.ticket
}

// addText is add for a change that includes the message's text, which stays in memory until
// it is committed.
func (c *committer) addText(s *queueState, m *message, change localengine.Change, undo func()) *ticket {
	c.mu.Lock()
	b := c.append(change, undo)
	b.texts = append(b.texts, unsavedText{s, m})
	c.mu.Unlock()
	m.unsaved = b.number
	c.signal()
	return b.ticket
}

// append puts a change into the current batch. It requires mu.
func (c *committer) append(change localengine.Change, undo func()) *batch {
	b := c.current
	b.changes = append(b.changes, change)
	b.undo = append(b.undo, undo)
	if len(b.changes) == c.target {
		c.targetReached <- struct{}{} // gather receives it, once for each target
	}
	return b
}

// expire removes an expired message from the store with the next commit. Nobody waits for
// that.
func (c *committer) expire(key localengine.MessageKey) {
	c.mu.Lock()
	c.current.expired = append(c.current.expired, key)
	c.mu.Unlock()
	c.signal()
}

func (c *committer) signal() {
	waiting.Signal(c.wake, struct{}{})
}

// run commits until stop is closed and nothing is left to commit. It begins with the work that
// an earlier process may have left over, such as removing the messages of a cleared queue.
func (c *committer) run() {
	defer close(c.stopped)
	c.commitPending(true)
	for {
		select {
		case <-c.wake:
			c.commitPending(false)
		case <-c.stop:
			c.commitPending(false)
			return
		}
	}
}

// commitPending commits until there is nothing to commit. If more is true, the store may have
// work left over.
func (c *committer) commitPending(more bool) {
	for {
		c.gather()
		b := c.takeBatch(more)
		if b == nil {
			return
		}
		var err error
		if more, err = c.commit(b); err != nil {
			return // remaining work is done with the next change
		}
	}
}

// maxGather is how long a commit waits for more callers to share it. It is short compared
// with a round trip to the service, and long compared with the time a caller needs between
// two requests.
const maxGather = time.Millisecond

// gather waits for half of the callers that shared the last commit or came while it was
// written: they are likely to be back at once, and the other half fills the next commit
// while this one is written. A commit costs about the same for one change as for many;
// without gather there would soon be as many commits as callers. A single caller never
// waits.
func (c *committer) gather() {
	c.mu.Lock()
	waiting := len(c.current.changes)
	enough := (c.lastSize + waiting) / 2
	if waiting == 0 || waiting >= enough {
		c.mu.Unlock()
		return
	}
	c.target = enough
	c.mu.Unlock()
	over := time.NewTimer(maxGather)
	defer over.Stop()
	select {
	case <-c.targetReached:
	case <-over.C:
	case <-c.stop:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.target = 0
	select {
	case <-c.targetReached: // it came after the timer fired
	default:
	}
}

// maxExpired limits how many expired messages one commit removes: callers wait for it.
const maxExpired = 4096

// takeBatch takes the current batch and begins another. It returns nil if there is nothing
// to commit and no work left over.
func (c *committer) takeBatch(leftOver bool) *batch {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := c.current
	if len(b.changes)+len(b.expired) == 0 && !leftOver {
		return nil
	}
	c.lastSize = len(b.changes)
	c.current = c.newBatch()
	if len(b.expired) > maxExpired {
		c.current.expired = b.expired[maxExpired:]
		b.expired = b.expired[:maxExpired:maxExpired]
	}
	return b
}

// commit writes a batch and wakes its callers.
func (c *committer) commit(b *batch) (more bool, err error) {
	changes := b.changes
	if len(b.expired) > 0 { // after earlier changes of the same messages
		changes = append(changes, b.expired)
	}
	if len(changes) > 0 {
		changes = append(changes, localengine.CommittedAt(c.clock.now()))
	}
	began := time.Now()
	more, err = c.store.Commit(changes)
	if err != nil {
		c.rollBack(b, err, time.Since(began))
		return false, err
	}
	for _, t := range b.texts {
		t.in.mu.Lock()
		if t.of.unsaved == b.number { // otherwise it has a newer text
			t.of.text, t.of.unsaved = "", 0
		}
		t.in.mu.Unlock()
	}
	close(b.done)
	return more, nil
}

// rollBack undoes b, which the store did not commit, and everything after b, which depends on
// it.
func (c *committer) rollBack(b *batch, cause error, took time.Duration) {
	c.gate.Lock()
	defer c.gate.Unlock()
	c.mu.Lock()
	later := c.current
	c.current = c.newBatch()
	c.current.expired = slices.Concat(b.expired, later.expired)
	c.mu.Unlock()

	unchanged := &queue.Error{Kind: queue.ErrUnavailable, Detail: "nothing was changed", Err: cause,
		Hint: "check whether the disk is full or failing, then try again"}
	failure := unchanged
	if errors.Is(cause, localengine.ErrUncertain) {
		failure = &queue.Error{Kind: queue.ErrOutcomeUnknown, Err: cause, Hint: "check the disk, then stop and open the store again"}
	}
	for _, undone := range []*batch{later, b} {
		for _, undo := range slices.Backward(undone.undo) {
			undo()
		}
		undone.err = failure
		close(undone.done)
	}
	// A failure may make the store read the whole file, which must not take all
	// of its time.
	c.refuseUntil, c.refusal = time.Now().Add(max(refuseFor, 10*took)), unchanged
}

// wait returns after the batch is committed or undone, with the reason if it was undone.
func (t *ticket) wait(ctx context.Context) error {
	if t == nil {
		return nil
	}
	select {
	case <-t.done:
		return t.err
	default:
	}
	select {
	case <-t.done:
		return t.err
	case <-ctx.Done():
		return &queue.Error{Kind: queue.ErrOutcomeUnknown, Detail: "the commit had not finished", Err: serviceerror.Ended(ctx)}
	}
}

func newer(a, b *ticket) *ticket {
	if a == nil || b != nil && b.number > a.number {
		return b
	}
	return a
}

// stateChanges are changes of message states that wait to be committed, and the states
// before them. The caller of its methods holds the queue's lock.
type stateChanges struct {
	in       *queueState
	messages []*message
	before   []localengine.MessageState
}

// save keeps the state of a message that is about to change. It does nothing on nil, which
// stands for an engine without a store.
func (c *stateChanges) save(m *message) {
	if c == nil {
		return
	}
	c.messages = append(c.messages, m)
	c.before = append(c.before, m.state(c.in.ordinal))
}

func (c *stateChanges) change() localengine.MessagesUpdated {
	moved := make(localengine.MessagesUpdated, len(c.messages))
	for i, m := range c.messages {
		moved[i] = m.state(c.in.ordinal)
	}
	return moved
}

func (c *stateChanges) undo() {
	for i, m := range c.messages {
		was := c.before[i]
		m.dequeues, m.receipt = was.Dequeues, was.Receipt
		if c.in.backlog.messages.get(m.sequence) == m { // else it has expired since
			c.in.backlog.hide(m, instant(was.Due))
		}
	}
}

// state returns the message as a store keeps it. The caller holds the lock.
func (m *message) state(ordinal uint64) localengine.MessageState {
	return localengine.MessageState{
		MessageKey: localengine.MessageKey{Queue: ordinal, Sequence: m.sequence},
		Inserted:   int64(m.inserted),
		Expires:    int64(m.expires),
		Due:        int64(m.due),
		Dequeues:   m.dequeues,
		Receipt:    m.receipt,
	}
}

// record adds a change of the queue to the current batch, if there is a store. The caller
// holds the lock. If the commit fails, undo runs with the lock held, after all later
// changes were undone.
func (q *handle) record(s *queueState, c localengine.Change, undo func()) {
	if q.engine.committer == nil {
		return
	}
	s.pending = q.engine.committer.add(c, func() { q.undo(s, undo) })
}

func (q *handle) recordText(s *queueState, m *message, c localengine.Change, undo func()) {
	if q.engine.committer == nil {
		return
	}
	s.pending = q.engine.committer.addText(s, m, c, func() { q.undo(s, undo) })
}

// undo runs an undo function with the lock held.
func (q *handle) undo(s *queueState, undo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	undo()
	s.pending = nil
	q.look(s) // messages may be visible again
}

// highWater holds upper limits, known to the store, of the sequences and receipts issued. They are
// reserved in advance, so that no number is issued twice after a crash and few commits record them.
// The next engine over the store skips the rest of a reservation.
type highWater struct {
	enqueued uint64
	receipts uint64
}

// reserveAhead is how many numbers are reserved at a time.
const reserveAhead = 1 << 14

// reserveNumbers makes sure that the next sequence and the given number of receipts are
// reserved by this commit or an earlier one. The caller holds the lock.
func (q *handle) reserveNumbers(s *queueState, receipts uint64) {
	if q.engine.committer == nil || s.enqueued < s.reserved.enqueued && s.receipts+receipts <= s.reserved.receipts {
		return
	}
	old := s.reserved
	s.reserved = highWater{enqueued: s.enqueued + reserveAhead, receipts: s.receipts + reserveAhead}
	q.recordState(s, func() { s.reserved = old })
}
