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
	journal     *journal      // nil in memory; never changes

	mu       sync.RWMutex
	accounts map[string]*account // guarded by mu
}

// account is the queues of one account. Its lock is taken before that of a
// queue, never after it, and is held for map operations only.
type account struct {
	mu      sync.RWMutex
	queues  map[string]*contents // guarded by mu
	names   []string             // guarded by mu; the keys of queues in order, for lists
	leaving map[string]instant   // guarded by mu; dropped names and when they are free
	leavers []string             // guarded by mu; the keys of leaving, soonest free first

	properties []byte  // guarded by mu; replaced, never changed
	pending    *ticket // guarded by mu; the newest change of the above
}

// contents are one queue from its creation to its drop. One that is created again
// under the same name is another.
type contents struct {
	ordinal uint64     // never changes
	name    queue.Name // never changes

	mu       sync.Mutex
	dropped  bool              // guarded by mu; whoever looked us up before the drop finds out here
	metadata map[string]string // guarded by mu; replaced, never changed
	policy   []byte            // guarded by mu; replaced, never changed
	enqueued uint64            // guarded by mu; the sequence of the newest message
	receipts uint64            // guarded by mu; receipts given out
	reserved bounds            // guarded by mu; those that the store knows
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
		accounts:    make(map[string]*account),
	}
}

// Close waits for what is in flight and closes the store, if there is one.
// Later calls of anything fail with [ErrClosed]; further calls of Close do
// nothing.
func (e *Engine) Close() error {
	if e.journal == nil {
		e.closed.Store(true)
		return nil
	}
	e.journal.gate.Lock()
	closed := e.closed.Swap(true)
	e.journal.gate.Unlock()
	if closed {
		<-e.journal.stopped
		return nil
	}
	close(e.journal.stop)
	<-e.journal.stopped
	return e.journal.store.Close()
}

// use says whether a call may need more space in the store than there was.
type use bool

const (
	reads use = false // or makes room
	grows use = true
)

// enter begins a call; leave must follow unless it fails.
func (e *Engine) enter(u use) error {
	if e.journal != nil {
		if err := e.journal.enter(u == grows); err != nil {
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
	if e.journal != nil {
		e.journal.leave()
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
	if err := e.enter(grows); err != nil {
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
func (e *Engine) account(name string, create bool) *account {
	e.mu.RLock()
	a := e.accounts[name]
	e.mu.RUnlock()
	if a != nil || !create {
		return a
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if a = e.accounts[name]; a == nil {
		a = &account{queues: map[string]*contents{}, leaving: map[string]instant{}}
		e.accounts[name] = a
	}
	return a
}

// find returns the queue of that name, or nil and the newest change that may be
// why there is none.
func (e *Engine) find(name queue.Name) (*contents, *ticket) {
	a := e.account(name.Account, false)
	if a == nil {
		return nil, nil
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.queues[name.Queue], a.pending
}

// create also returns the newest change of what its answer tells.
func (e *Engine) create(a *account, name queue.Name, metadata map[string]string) (bool, *ticket, error) {
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
	a.release(e.clock.now())
	if _, taken := a.leaving[name.Queue]; taken {
		return false, a.pending, &queue.Error{Kind: queue.ErrQueueBeingDeleted, Hint: "the name of a dropped queue is free again after 30 seconds or more"}
	}
	s := &contents{ordinal: e.ordinal.Add(1), name: name, metadata: maps.Clone(metadata), backlog: newBacklog()}
	a.insert(s)
	if e.journal != nil {
		a.pending = e.journal.add(QueueSaved(s.state()), func() {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.remove(s)
			a.pending = nil
		})
		s.pending = a.pending
	}
	return true, a.pending, nil
}

func (e *Engine) drop(a *account, name string) (*ticket, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.queues[name]
	if s == nil {
		return a.pending, missing
	}
	a.remove(s)
	at := e.clock.now()
	a.release(at)
	leaving := LeavingName{Name: s.name}
	if e.deletingFor > 0 {
		free := at + instant(e.deletingFor)
		leaving.Until = int64(free)
		a.takeLeave(name, free)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.backlog
	s.dropped = true
	s.backlog = newBacklog() // handles that found us must not keep the messages
	if e.journal != nil {
		a.pending = e.journal.add(QueueDropped{Ordinal: s.ordinal, Leaving: leaving}, func() { a.restore(s, left) })
		s.pending = a.pending
	}
	return a.pending, nil
}

// restore undoes a drop.
func (a *account) restore(s *contents, left backlog) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.insert(s)
	delete(a.leaving, s.name.Queue)
	a.leavers = slices.DeleteFunc(a.leavers, func(name string) bool { return name == s.name.Queue })
	a.pending = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped, s.backlog, s.pending = false, left, nil
}

// insert adds a queue whose name is not there. The caller holds mu.
func (a *account) insert(s *contents) {
	a.queues[s.name.Queue] = s
	i, _ := slices.BinarySearch(a.names, s.name.Queue)
	a.names = slices.Insert(a.names, i, s.name.Queue)
}

// remove takes a queue away that is there. The caller holds mu.
func (a *account) remove(s *contents) {
	delete(a.queues, s.name.Queue)
	i, _ := slices.BinarySearch(a.names, s.name.Queue)
	a.names = slices.Delete(a.names, i, i+1)
}

// takeLeave keeps a name taken until it is free. The period is the same for all
// of an engine, so its place is nearly always the end. The caller holds mu.
func (a *account) takeLeave(name string, free instant) {
	i := len(a.leavers)
	for i > 0 && a.leaving[a.leavers[i-1]] > free {
		i--
	}
	a.leavers = slices.Insert(a.leavers, i, name)
	a.leaving[name] = free
}

// release forgets the names that are free by now. The caller holds mu.
func (a *account) release(at instant) {
	free := 0
	for free < len(a.leavers) && a.leaving[a.leavers[free]] <= at {
		delete(a.leaving, a.leavers[free])
		free++
	}
	a.leavers = slices.Delete(a.leavers, 0, free)
}

// state is the queue as a store keeps it. The caller holds mu, or nobody else
// knows the queue.
func (s *contents) state() QueueState {
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
var missing = &queue.Error{Kind: queue.ErrQueueMissing, Hint: "create it first"}

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
