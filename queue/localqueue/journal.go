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
type journal struct {
	store Store
	clock *clock

	// gate is held for reading by whoever changes memory, from the first look
	// until the change is in a batch, and for writing to undo.
	gate  sync.RWMutex
	full  time.Time // guarded by gate; until here nothing is taken on that needs space
	cause error     // guarded by gate; why

	mu      sync.Mutex
	filling *commit // guarded by mu; the one being filled
	number  uint64  // guarded by mu; of filling
	last    int     // guarded by mu; how many changes were in the commit before
	enough  int     // guarded by mu; how many gather waits for; 0 while it does not

	wake    chan struct{} // has room for one: there is something to commit
	ready   chan struct{} // has room for one: there are enough
	stop    chan struct{} // closed when no more will come
	stopped chan struct{} // closed when the committer has returned
}

// commit is the changes of one commit and what to do when it is over.
type commit struct {
	*ticket
	changes []Change
	undo    []func()    // in the order of the changes
	texts   []savedText // in memory until they are committed
	expired MessagesExpired
}

type savedText struct {
	in *contents
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
const fullFor = time.Second

// enter lets a caller in that may change memory; leave ends that. It keeps out
// who needs space, such as an enqueue, for a while after there was none.
func (j *journal) enter(space bool) error {
	j.gate.RLock()
	if space && j.cause != nil && time.Now().Before(j.full) {
		defer j.gate.RUnlock()
		return j.cause
	}
	return nil
}

func (j *journal) leave() { j.gate.RUnlock() }

func newJournal(store Store, clock *clock) *journal {
	j := &journal{
		store:   store,
		clock:   clock,
		wake:    make(chan struct{}, 1),
		ready:   make(chan struct{}, 1),
		stop:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	j.filling = j.next()
	return j
}

// next makes the batch that is filled next. The caller holds mu, if anybody
// else knows the journal.
func (j *journal) next() *commit {
	j.number++
	return &commit{ticket: &ticket{number: j.number, done: make(chan struct{})}}
}

// add puts a change into the current batch and returns its ticket. The caller
// holds the gate for reading and the lock of what changed, so that the order in
// the journal is the order in memory. Undo takes the lock itself.
func (j *journal) add(c Change, undo func()) *ticket {
	j.mu.Lock()
	b := j.put(c, undo)
	j.mu.Unlock()
	j.nudge()
	return b.ticket
}

// addText is add for a change with the message's text, which stays in memory
// until it is committed.
func (j *journal) addText(s *contents, m *message, c Change, undo func()) *ticket {
	j.mu.Lock()
	b := j.put(c, undo)
	b.texts = append(b.texts, savedText{s, m})
	j.mu.Unlock()
	m.unsaved = b.number
	j.nudge()
	return b.ticket
}

// put puts a change into the batch that is being filled. Requires mu.
func (j *journal) put(c Change, undo func()) *commit {
	b := j.filling
	b.changes = append(b.changes, c)
	b.undo = append(b.undo, undo)
	if len(b.changes) == j.enough {
		j.ready <- struct{}{} // gather takes it, once for each time that it wants some
	}
	return b
}

// expire tells the store of messages that are over, with the next commit.
// Nobody waits for that.
func (j *journal) expire(key MessageKey) {
	j.mu.Lock()
	j.filling.expired = append(j.filling.expired, key)
	j.mu.Unlock()
	j.nudge()
}

func (j *journal) nudge() {
	select {
	case j.wake <- struct{}{}:
	default:
	}
}

// run commits until stop is closed and nothing is left.
func (j *journal) run() {
	defer close(j.stopped)
	for {
		select {
		case <-j.wake:
			j.commitAll()
		case <-j.stop:
			j.commitAll()
			return
		}
	}
}

// commitAll commits until there is nothing to commit.
func (j *journal) commitAll() {
	for more := false; ; {
		j.gather()
		b := j.cut(more)
		if b == nil {
			return
		}
		var err error
		if more, err = j.write(b); err != nil {
			return // what was left over comes with the next change
		}
	}
}

// gatherFor is how long a commit waits for more callers to share it. It is short against
// the way to the service and long against what a caller needs from one answer to its next
// request.
const gatherFor = time.Millisecond

// gather waits for half of those who shared the last commit, or came while it was written:
// they are likely to be back at once, and the other half fills the next commit while this
// one is written. A commit costs about the same for one as for many, and without this they
// would soon be as many as there are callers. One caller alone waits for nobody.
func (j *journal) gather() {
	j.mu.Lock()
	waiting := len(j.filling.changes)
	enough := (j.last + waiting) / 2
	if waiting == 0 || waiting >= enough {
		j.mu.Unlock()
		return
	}
	j.enough = enough
	j.mu.Unlock()
	over := time.NewTimer(gatherFor)
	defer over.Stop()
	select {
	case <-j.ready:
	case <-over.C:
	case <-j.stop:
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.enough = 0
	select {
	case <-j.ready: // it came at the last moment
	default:
	}
}

// mostExpired bounds what one commit takes away of expired messages: callers
// wait for it.
const mostExpired = 4096

// cut takes the batch that was filled and begins another; nil when there is
// nothing to commit and nothing was left over.
func (j *journal) cut(leftOver bool) *commit {
	j.mu.Lock()
	defer j.mu.Unlock()
	b := j.filling
	if len(b.changes)+len(b.expired) == 0 && !leftOver {
		return nil
	}
	j.last = len(b.changes)
	j.filling = j.next()
	if len(b.expired) > mostExpired {
		j.filling.expired = b.expired[mostExpired:]
		b.expired = b.expired[:mostExpired:mostExpired]
	}
	return b
}

func (j *journal) write(b *commit) (more bool, err error) {
	changes := b.changes
	if len(b.expired) > 0 { // behind what was written of the same messages before they were over
		changes = append(changes, b.expired)
	}
	if len(changes) > 0 {
		changes = append(changes, TimePassed(j.clock.now()))
	}
	began := time.Now()
	more, err = j.store.Commit(changes)
	if err != nil {
		j.undo(b, err, time.Since(began))
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
func (j *journal) undo(b *commit, cause error, took time.Duration) {
	j.gate.Lock()
	defer j.gate.Unlock()
	j.mu.Lock()
	later := j.filling
	j.filling = j.next()
	j.filling.expired = slices.Concat(b.expired, later.expired)
	j.mu.Unlock()

	unchanged := &queue.Error{Kind: queue.ErrUnavailable, Detail: "nothing was changed", Err: cause,
		Hint: "see whether the disk is full or broken, then try again"}
	failure := unchanged
	if errors.Is(cause, ErrUncertain) {
		failure = &queue.Error{Kind: queue.ErrOutcomeUnknown, Err: cause, Hint: "see what is wrong with the disk, then stop and open the store again"}
	}
	for _, undone := range []*commit{later, b} {
		for _, undo := range slices.Backward(undone.undo) {
			undo()
		}
		undone.err = failure
		close(undone.done)
	}
	// A failure may cost the store a look at the whole file: do not spend all
	// the time on that.
	j.full, j.cause = time.Now().Add(max(fullFor, 10*took)), unchanged
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
