package localqueue

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/queue"
)

// Engine holds accounts, their queues and their messages. Use [New] for one in
// memory and [Open] for one over a [Store]. It is safe for concurrent use.
//
// Accounts need no making: they are name spaces. Who may use which is for the
// emulator to say.
type Engine struct {
	deletingFor time.Duration
	identity    identity
	clock       *clock
	ordinal     atomic.Uint64 // queues created so far
	closed      atomic.Bool   // over a store, guarded by the journal's gate
	committer   *committer    // nil in memory; never changes

	mu       sync.RWMutex
	accounts map[string]*accountState // guarded by mu
}

// account is the queues of one account. Its lock is taken before that of a
// queue, never after it, and is held for map operations only.
type accountState struct {
	mu            sync.RWMutex
	queues        map[string]*queueState // guarded by mu
	names         []string               // guarded by mu; the keys of queues in order, for lists
	deleting      map[string]instant     // guarded by mu; dropped names and when they are free
	deletingOrder []string               // guarded by mu; the keys of leaving, soonest free first

	properties []byte  // guarded by mu; replaced, never changed
	pending    *ticket // guarded by mu; the newest change of the above
}

// contents are one queue from its creation to its drop. One that is created again
// under the same name is another.
type queueState struct {
	ordinal uint64     // never changes
	name    queue.Name // never changes

	mu       sync.Mutex
	dropped  bool              // guarded by mu; whoever looked us up before the drop finds out here
	metadata map[string]string // guarded by mu; replaced, never changed
	policy   []byte            // guarded by mu; replaced, never changed
	enqueued uint64            // guarded by mu; the sequence of the newest message
	receipts uint64            // guarded by mu; receipts given out
	reserved highWater         // guarded by mu; those that the store knows
	backlog  backlog           // guarded by mu
	pending  *ticket           // guarded by mu; the newest change of the above
}

// New returns an empty engine in memory. Nothing outlives it.
func New(o *Options) *Engine {
	secret := newSecret(o.seed())
	return newEngine(o, secret)
}

func newEngine(o *Options, secret [32]byte) *Engine {
	return &Engine{
		deletingFor: o.deletingFor(),
		identity:    newIdentity(secret),
		clock:       newClock(0),
		accounts:    make(map[string]*accountState),
	}
}

// Close waits for what is in flight and closes the store, if there is one.
// Later calls of anything fail with [ErrClosed]; further calls of Close do
// nothing.
func (e *Engine) Close() error {
	if e.committer == nil {
		e.closed.Store(true)
		return nil
	}
	e.committer.gate.Lock()
	closed := e.closed.Swap(true)
	e.committer.gate.Unlock()
	if closed {
		<-e.committer.stopped
		return nil
	}
	close(e.committer.stop)
	<-e.committer.stopped
	return e.committer.store.Close()
}

// use says whether a call may need more space in the store than there was.
type spaceNeed bool

const (
	noSpace    spaceNeed = false // or makes room
	needsSpace spaceNeed = true
)

// enter begins a call; leave must follow unless it fails.
func (e *Engine) enter(u spaceNeed) error {
	if e.committer != nil {
		if err := e.committer.enter(u == needsSpace); err != nil {
			return err
		}
	}
	if e.closed.Load() {
		e.leave()
		return &queue.Error{Kind: queue.ErrUnavailable, Err: ErrClosed, Hint: "open it again"}
	}
	return nil
}

func (e *Engine) leave() {
	if e.committer != nil {
		e.committer.leave()
	}
}

// Queue returns the queue of that name, whether or not it exists yet. A name
// that the service would not take is refused at the first call.
func (e *Engine) Queue(name queue.Name) *Queue {
	return &Queue{engine: e, name: name, refused: queue.CheckName(name.Queue)}
}

// Create makes a queue, as [queue.Queue.Create] does, and tells whether it is
// new: false means that it was there with the same metadata, which the service
// answers differently (201 and 204).
func (e *Engine) Create(ctx context.Context, name queue.Name, metadata map[string]string) (created bool, err error) {
	const op = "create"
	if err := ready(ctx, queue.CheckName(name.Queue)); err != nil {
		return false, queue.Explain(err, op, name, "")
	}
	if err := queue.CheckMetadata(metadata); err != nil {
		return false, queue.Explain(err, op, name, "")
	}
	if err := e.enter(needsSpace); err != nil {
		return false, queue.Explain(err, op, name, "")
	}
	created, seen, err := e.create(e.account(name.Account, true), name, metadata)
	e.leave()
	if err := settled(ctx, seen, err); err != nil {
		return false, queue.Explain(err, op, name, "")
	}
	return created, nil
}

// settled returns err once what it tells of is durable, or why that failed.
func settled(ctx context.Context, seen *ticket, err error) error {
	if failed := seen.wait(ctx); failed != nil {
		return failed
	}
	return err
}

// account returns the account of that name, or nil when there is none and none
// is to be made.
func (e *Engine) account(name string, create bool) *accountState {
	e.mu.RLock()
	a := e.accounts[name]
	e.mu.RUnlock()
	if a != nil || !create {
		return a
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if a = e.accounts[name]; a == nil {
		a = &accountState{queues: map[string]*queueState{}, deleting: map[string]instant{}}
		e.accounts[name] = a
	}
	return a
}

// find returns the queue of that name, or nil and the newest change that may be
// why there is none.
func (e *Engine) find(name queue.Name) (*queueState, *ticket) {
	a := e.account(name.Account, false)
	if a == nil {
		return nil, nil
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.queues[name.Queue], a.pending
}

// create also returns the newest change of what its answer tells.
func (e *Engine) create(a *accountState, name queue.Name, metadata map[string]string) (bool, *ticket, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.queues[name.Queue]; s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		seen := newer(a.pending, s.pending)
		if !sameMetadata(s.metadata, metadata) {
			return false, seen, &queue.Error{Kind: queue.ErrQueueExists, Hint: "set the metadata of the queue that exists, or create it with the same"}
		}
		return false, seen, nil
	}
	a.releaseNames(e.clock.now())
	if _, taken := a.deleting[name.Queue]; taken {
		return false, a.pending, &queue.Error{Kind: queue.ErrQueueBeingDeleted, Hint: "the name of a dropped queue is free again after 30 seconds or more"}
	}
	s := &queueState{ordinal: e.ordinal.Add(1), name: name, metadata: maps.Clone(metadata), backlog: newBacklog()}
	a.insert(s)
	if e.committer != nil {
		a.pending = e.committer.add(QueueSaved(s.state()), func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.remove(s)
			a.pending = nil
		})
		s.pending = a.pending
	}
	return true, a.pending, nil
}

func (e *Engine) drop(a *accountState, name string) (*ticket, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.queues[name]
	if s == nil {
		return a.pending, errQueueMissing
	}
	a.remove(s)
	at := e.clock.now()
	a.releaseNames(at)
	leaving := DeletingName{Name: s.name}
	if e.deletingFor > 0 {
		free := at + instant(e.deletingFor)
		leaving.Until = int64(free)
		a.markDeleting(name, free)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.backlog
	s.dropped = true
	s.backlog = newBacklog() // handles that found us must not keep the messages
	if e.committer != nil {
		a.pending = e.committer.add(QueueDropped{Ordinal: s.ordinal, Deleting: leaving}, func() { a.restore(s, left) })
		s.pending = a.pending
	}
	return a.pending, nil
}

// restore undoes a drop.
func (a *accountState) restore(s *queueState, left backlog) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.insert(s)
	delete(a.deleting, s.name.Queue)
	a.deletingOrder = slices.DeleteFunc(a.deletingOrder, func(name string) bool { return name == s.name.Queue })
	a.pending = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped, s.backlog, s.pending = false, left, nil
}

// insert adds a queue whose name is not there. The caller holds mu.
func (a *accountState) insert(s *queueState) {
	a.queues[s.name.Queue] = s
	i, _ := slices.BinarySearch(a.names, s.name.Queue)
	a.names = slices.Insert(a.names, i, s.name.Queue)
}

// remove takes a queue away that is there. The caller holds mu.
func (a *accountState) remove(s *queueState) {
	delete(a.queues, s.name.Queue)
	i, _ := slices.BinarySearch(a.names, s.name.Queue)
	a.names = slices.Delete(a.names, i, i+1)
}

// takeLeave keeps a name taken until it is free. The period is the same for all
// of an engine, so its place is nearly always the end. The caller holds mu.
func (a *accountState) markDeleting(name string, free instant) {
	i := len(a.deletingOrder)
	for i > 0 && a.deleting[a.deletingOrder[i-1]] > free {
		i--
	}
	a.deletingOrder = slices.Insert(a.deletingOrder, i, name)
	a.deleting[name] = free
}

// release forgets the names that are free by now. The caller holds mu.
func (a *accountState) releaseNames(at instant) {
	free := 0
	for free < len(a.deletingOrder) && a.deleting[a.deletingOrder[free]] <= at {
		delete(a.deleting, a.deletingOrder[free])
		free++
	}
	a.deletingOrder = slices.Delete(a.deletingOrder, 0, free)
}

// state is the queue as a store keeps it. The caller holds mu, or nobody else
// knows the queue.
func (s *queueState) state() QueueState {
	return QueueState{
		Ordinal:  s.ordinal,
		Name:     s.name,
		Metadata: s.metadata,
		Policy:   s.policy,
		Enqueued: s.reserved.enqueued,
		Receipts: s.reserved.receipts,
	}
}

// missing is what every operation on a queue that is not there fails with.
var errQueueMissing = &queue.Error{Kind: queue.ErrQueueMissing, Hint: "create it first"}

// sameMetadata compares as the service does: names without regard to case,
// which HTTP does not keep, values with it.
func sameMetadata(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	folded := make(map[string]string, len(a))
	for name, value := range a {
		folded[strings.ToLower(name)] = value
	}
	for name, value := range b {
		if have, ok := folded[strings.ToLower(name)]; !ok || have != value {
			return false
		}
	}
	return true
}

// ready returns why a call must not begin: its context is over, or an argument
// was refused.
func ready(ctx context.Context, refused error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return refused
}
