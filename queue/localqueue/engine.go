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

// Engine holds accounts, their queues and their messages in memory. Use [New].
// It is safe for concurrent use.
//
// Accounts need no making: they are name spaces. Who may use which is for the
// emulator to say.
type Engine struct {
	deletingFor time.Duration
	identity    identity
	ordinal     atomic.Uint64 // queues created so far

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

	properties []byte // guarded by mu; replaced, never changed
}

// contents are one queue from its creation to its drop. One that is created again
// under the same name is another.
type contents struct {
	ordinal uint64 // never changes

	mu       sync.Mutex
	dropped  bool              // guarded by mu; whoever looked us up before the drop finds out here
	metadata map[string]string // guarded by mu; replaced, never changed
	policy   []byte            // guarded by mu; replaced, never changed
	enqueued uint64            // guarded by mu; the sequence of the newest message
	receipts uint64            // guarded by mu; receipts given out
	backlog  backlog           // guarded by mu
}

// New returns an empty engine.
func New(o *Options) *Engine {
	return &Engine{
		deletingFor: o.deletingFor(),
		identity:    newIdentity(o.seed()),
		accounts:    make(map[string]*account),
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
	created, err = e.account(name.Account, true).create(name.Queue, metadata, &e.ordinal)
	if err != nil {
		return false, queue.Explain(err, op, name, "")
	}
	return created, nil
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

// find returns the queue of that name, or the error that there is none.
func (e *Engine) find(name queue.Name) (*contents, error) {
	if a := e.account(name.Account, false); a != nil {
		a.mu.RLock()
		s := a.queues[name.Queue]
		a.mu.RUnlock()
		if s != nil {
			return s, nil
		}
	}
	return nil, missing
}

func (a *account) create(name string, metadata map[string]string, ordinal *atomic.Uint64) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.queues[name]; s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !sameMetadata(s.metadata, metadata) {
			return false, &queue.Error{Kind: queue.ErrQueueExists, Hint: "set the metadata of the queue that exists, or create it with the same"}
		}
		return false, nil
	}
	a.release(now())
	if _, taken := a.leaving[name]; taken {
		return false, &queue.Error{Kind: queue.ErrQueueBeingDeleted, Hint: "the name of a dropped queue is free again after 30 seconds or more"}
	}
	a.queues[name] = &contents{ordinal: ordinal.Add(1), metadata: maps.Clone(metadata), backlog: newBacklog()}
	i, _ := slices.BinarySearch(a.names, name)
	a.names = slices.Insert(a.names, i, name)
	return true, nil
}

func (a *account) drop(name string, deletingFor time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := a.queues[name]
	if s == nil {
		return missing
	}
	delete(a.queues, name)
	i, _ := slices.BinarySearch(a.names, name)
	a.names = slices.Delete(a.names, i, i+1)

	at := now()
	a.release(at)
	if deletingFor > 0 {
		a.leaving[name] = at + instant(deletingFor)
		a.leavers = append(a.leavers, name)
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped = true
	s.backlog = newBacklog() // handles that found us must not keep the messages
	return nil
}

// release forgets the names that are free by now. The period is the same for
// all, so the first is the soonest. The caller holds mu.
func (a *account) release(at instant) {
	free := 0
	for free < len(a.leavers) && a.leaving[a.leavers[free]] <= at {
		delete(a.leaving, a.leavers[free])
		free++
	}
	a.leavers = slices.Delete(a.leavers, 0, free)
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
