package localqueue

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/queue"
)

// ErrClosed means that the engine was closed. Open it again.
var ErrClosed = errors.New("the engine is closed")

// Engine holds accounts, their queues and their messages. Use [New] for one in memory and
// [Open] for one over a [storage.Store]. It is safe for concurrent use.
//
// Accounts exist as soon as they are named. The engine does no authorization; the
// emulator does.
type Engine struct {
	deletingFor time.Duration
	identity    identity
	clock       *clock
	ordinal     atomic.Uint64 // queues created so far
	closed      atomic.Bool   // over a store, guarded by the committer's gate
	committer   *committer    // nil in memory; never changes

	mu       sync.RWMutex
	accounts map[string]*accountState // guarded by mu
}

// New returns an empty engine in memory. Its messages are lost when the process ends.
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

// Close waits for calls in progress and closes the store, if there is one. Later calls fail
// with [ErrClosed]; closing again does nothing.
func (e *Engine) Close() error {
	if e.committer == nil {
		e.closed.Store(true)
		e.endWatchers()
		return nil
	}
	e.committer.gate.Lock()
	closed := e.closed.Swap(true)
	e.committer.gate.Unlock()
	if closed {
		<-e.committer.stopped
		return nil
	}
	e.endWatchers()
	close(e.committer.stop)
	<-e.committer.stopped
	return e.committer.store.Close()
}

// spaceNeed says whether a call may need more space in the store.
type spaceNeed bool

const (
	noSpace    spaceNeed = false // or frees some
	needsSpace spaceNeed = true
)

// enter begins a call. Unless it fails, leave must follow.
func (e *Engine) enter(u spaceNeed) error {
	if e.committer != nil {
		if err := e.committer.enter(u == needsSpace); err != nil {
			return err
		}
	}
	if e.closed.Load() {
		e.leave()
		return errClosed()
	}
	return nil
}

func (e *Engine) leave() {
	if e.committer != nil {
		e.committer.leave()
	}
}

// Queue returns the queue of that name, whether or not it exists. If the service would
// refuse the name, the first call on the queue fails.
func (e *Engine) Queue(name queue.Name) *Queue {
	return &Queue{engine: e, name: name, refused: queue.CheckName(name.Queue)}
}

// settled waits for the changes that err reveals, and returns err or why they failed.
func settled(ctx context.Context, seen *ticket, err error) error {
	if failed := seen.wait(ctx); failed != nil {
		return failed
	}
	return err
}

// find returns the queue of that name, or nil and the newest change that may explain its
// absence.
func (e *Engine) find(name queue.Name) (*queueState, *ticket) {
	a := e.account(name.Account, false)
	if a == nil {
		return nil, nil
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.queues[name.Queue], a.pending
}

// ready returns why a call must not begin: its context has ended, or an argument is
// invalid.
func ready(ctx context.Context, refused error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return refused
}
