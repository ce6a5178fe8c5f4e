package localqueue

import (
	"context"
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

// settled returns err once what it tells of is durable, or why that failed.
func settled(ctx context.Context, seen *ticket, err error) error {
	if failed := seen.wait(ctx); failed != nil {
		return failed
	}
	return err
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

// ready returns why a call must not begin: its context is over, or an argument
// was refused.
func ready(ctx context.Context, refused error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return refused
}
