package localqueue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// journal makes what happens in memory durable. Callers change memory under the
// lock of their queue, add the change to the batch that is being filled, and wait
// until that batch is committed before they answer. One goroutine commits: while
// it waits for the disk the next batch fills, so that as many callers as there
// are share one commit.
//
// Two things follow from the one order that all changes have. What depends on a
// change commits with it or after it, so no answer rests on something that could
// still be lost; an answer that only tells what it saw waits for the newest
// change of what it looked at. And when a commit fails, everything that came
// after is undone too, newest first, which leaves memory as the disk is.
type committer struct {
	store Store
	clock *clock

	// gate is held for reading by whoever changes memory, from the first look
	// until the change is in a batch, and for writing to undo.
	gate        sync.RWMutex
	refuseUntil time.Time // guarded by gate; until here nothing is taken on that needs space
	refusal     error     // guarded by gate; why

	mu       sync.Mutex
	current  *batch // guarded by mu; the one being filled
	number   uint64 // guarded by mu; of filling
	lastSize int    // guarded by mu; how many changes were in the commit before
	target   int    // guarded by mu; how many gather waits for; 0 while it does not

	wake          chan struct{} // has room for one: there is something to commit
	targetReached chan struct{} // has room for one: there are enough
	stop          chan struct{} // closed when no more will come
	stopped       chan struct{} // closed when the committer has returned
}

// commit is the changes of one commit and what to do when it is over.
type batch struct {
	*ticket
	changes []Change
	undo    []func()      // in the order of the changes
	texts   []unsavedText // in memory until they are committed
	expired MessagesExpired
}

type unsavedText struct {
	in *queueState
	of *message
}

// ticket is what a caller waits with. A nil one is for nothing.
type ticket struct {
	number uint64
	done   chan struct{} // closed when the batch is committed or undone
	err    error         // why it was undone; to be read when done is closed
}

// fullFor is how long nothing that needs space is taken on after a commit
// failed, at least. Meanwhile deletes go on, which make the room.
const refuseFor = time.Second

// enter lets a caller in that may change memory; leave ends that. It keeps out
// who needs space, such as an enqueue, for a while after there was none.
func (j *committer) enter(space bool) error {
	j.gate.RLock()
	if space && j.refusal != nil && time.Now().Before(j.refuseUntil) {
		defer j.gate.RUnlock()
		return j.refusal
	}
	return nil
}

func (j *committer) leave() { j.gate.RUnlock() }

func newCommitter(store Store, clock *clock) *committer {
	j := &committer{
		store:         store,
		clock:         clock,
		wake:          make(chan struct{}, 1),
		targetReached: make(chan struct{}, 1),
		stop:          make(chan struct{}),
		stopped:       make(chan struct{}),
	}
	j.current = j.newBatch()
	return j
}

// next makes the batch that is filled next. The caller holds mu, if anybody
// else knows the journal.
func (j *committer) newBatch() *batch {
	j.number++
	return &batch{ticket: &ticket{number: j.number, done: make(chan struct{})}}
}

// add puts a change into the current batch and returns its ticket. The caller
// holds the gate for reading and the lock of what changed, so that the order in
// the journal is the order in memory. Undo takes the lock itself.
func (j *committer) add(c Change, undo func()) *ticket {
	j.mu.Lock()
	b := j.append(c, undo)
	j.mu.Unlock()
	j.signal()
	return b.ticket
}

// addText is add for a change with the message's text, which stays in memory
// until it is committed.
func (j *committer) addText(s *queueState, m *message, c Change, undo func()) *ticket {
	j.mu.Lock()
	b := j.append(c, undo)
	b.texts = append(b.texts, unsavedText{s, m})
	j.mu.Unlock()
	m.unsaved = b.number
	j.signal()
	return b.ticket
}

// put puts a change into the batch that is being filled. Requires mu.
func (j *committer) append(c Change, undo func()) *batch {
	b := j.current
	b.changes = append(b.changes, c)
	b.undo = append(b.undo, undo)
	if len(b.changes) == j.target {
		j.targetReached <- struct{}{} // gather takes it, once for each time that it wants some
	}
	return b
}

// expire tells the store of messages that are over, with the next commit.
// Nobody waits for that.
func (j *committer) expire(key MessageKey) {
	j.mu.Lock()
	j.current.expired = append(j.current.expired, key)
	j.mu.Unlock()
	j.signal()
}

func (j *committer) signal() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// run commits until stop is closed and nothing is left.
func (j *committer) run() {
	defer close(j.stopped)
	for {
		select {
		case <-j.wake:
			j.commitPending()
		case <-j.stop:
			j.commitPending()
			return
		}
	}
}

// commitAll commits until there is nothing to commit.
func (j *committer) commitPending() {
	for more := false; ; {
		j.gather()
		b := j.takeBatch(more)
		if b == nil {
			return
		}
		var err error
		if more, err = j.commit(b); err != nil {
			return // what was left over comes with the next change
		}
	}
}

// gatherFor is how long a commit waits for more callers to share it. It is short against
// the way to the service and long against what a caller needs from one answer to its next
// request.
const maxGather = time.Millisecond

// gather waits for half of those who shared the last commit, or came while it was written:
// they are likely to be back at once, and the other half fills the next commit while this
// one is written. A commit costs about the same for one as for many, and without this they
// would soon be as many as there are callers. One caller alone waits for nobody.
func (j *committer) gather() {
	j.mu.Lock()
	waiting := len(j.current.changes)
	enough := (j.lastSize + waiting) / 2
	if waiting == 0 || waiting >= enough {
		j.mu.Unlock()
		return
	}
	j.target = enough
	j.mu.Unlock()
	over := time.NewTimer(maxGather)
	defer over.Stop()
	select {
	case <-j.targetReached:
	case <-over.C:
	case <-j.stop:
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.target = 0
	select {
	case <-j.targetReached: // it came at the last moment
	default:
	}
}

// mostExpired bounds what one commit takes away of expired messages: callers
// wait for it.
const maxExpired = 4096

// cut takes the batch that was filled and begins another; nil when there is
// nothing to commit and nothing was left over.
func (j *committer) takeBatch(leftOver bool) *batch {
	j.mu.Lock()
	defer j.mu.Unlock()
	b := j.current
	if len(b.changes)+len(b.expired) == 0 && !leftOver {
		return nil
	}
	j.lastSize = len(b.changes)
	j.current = j.newBatch()
	if len(b.expired) > maxExpired {
		j.current.expired = b.expired[maxExpired:]
		b.expired = b.expired[:maxExpired:maxExpired]
	}
	return b
}

func (j *committer) commit(b *batch) (more bool, err error) {
	changes := b.changes
	if len(b.expired) > 0 { // behind what was written of the same messages before they were over
		changes = append(changes, b.expired)
	}
	if len(changes) > 0 {
		changes = append(changes, CommittedAt(j.clock.now()))
	}
	began := time.Now()
	more, err = j.store.Commit(changes)
	if err != nil {
		j.rollBack(b, err, time.Since(began))
		return false, err
	}
	for _, t := range b.texts {
		t.in.mu.Lock()
		if t.of.unsaved == b.number { // else it has a newer text
			t.of.text, t.of.unsaved = "", 0
		}
		t.in.mu.Unlock()
	}
	close(b.done)
	return more, nil
}

// undo brings memory back to what the last commit left: nothing of b was kept,
// and what came after b rests on it.
func (j *committer) rollBack(b *batch, cause error, took time.Duration) {
	j.gate.Lock()
	defer j.gate.Unlock()
	j.mu.Lock()
	later := j.current
	j.current = j.newBatch()
	j.current.expired = slices.Concat(b.expired, later.expired)
	j.mu.Unlock()

	unchanged := &queue.Error{Kind: queue.ErrUnavailable, Detail: "nothing was changed", Err: cause,
		Hint: "see whether the disk is full or broken, then try again"}
	failure := unchanged
	if errors.Is(cause, ErrUncertain) {
		failure = &queue.Error{Kind: queue.ErrOutcomeUnknown, Err: cause, Hint: "see what is wrong with the disk, then stop and open the store again"}
	}
	for _, undone := range []*batch{later, b} {
		for _, undo := range slices.Backward(undone.undo) {
			undo()
		}
		undone.err = failure
		close(undone.done)
	}
	// A failure may cost the store a look at the whole file: do not spend all
	// the time on that.
	j.refuseUntil, j.refusal = time.Now().Add(max(refuseFor, 10*took)), unchanged
}

// wait returns when the batch of the ticket is durable, and why not.
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
		return &queue.Error{Kind: queue.ErrOutcomeUnknown, Detail: "the disk had not answered yet", Err: ctx.Err()}
	}
}

// newer returns the ticket that is over later.
func newer(a, b *ticket) *ticket {
	if a == nil || b != nil && b.number > a.number {
		return b
	}
	return a
}
