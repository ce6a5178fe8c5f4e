package localqueue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/localengine"
	"github.com/millrace/millrace/internal/serviceerror"
	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/driver"
)

// Options configures an [Engine]. Nil and the zero value mean the defaults.
type Options struct {
	// DeletingFor is how long the name of a dropped queue stays reserved; meanwhile a create
	// fails with [queue.ErrQueueBeingDeleted]. The minimum is 1 ms. A negative value frees the
	// name immediately. Defaults to 30 s, the minimum that the service documents.
	DeletingFor time.Duration

	// Seed makes message ids and receipts a pure function of the seed, the number of the queue
	// in order of creation, and the number within the queue, so that a test can be repeated.
	// Zero means a random seed, so that ids cannot be guessed. A directory that was used before
	// keeps its seed. Defaults to 0.
	Seed uint64
}

func (o *Options) validate() error {
	if o == nil {
		return nil
	}
	if err := units.Wait("Options.DeletingFor", o.DeletingFor); err != nil {
		return fmt.Errorf("localqueue: %w", err)
	}
	return nil
}

func (o *Options) deletingFor() time.Duration {
	switch {
	case o == nil || o.DeletingFor == 0:
		return 30 * time.Second
	case o.DeletingFor < 0:
		return 0
	default:
		return o.DeletingFor
	}
}

func (o *Options) seed() uint64 {
	if o == nil {
		return 0
	}
	return o.Seed
}

func init() {
	localengine.Over = func(store localengine.Store, options any) (engine any, err error) {
		return over(store, options.(*Options))
	}
}

// over returns an engine over a store, with everything that the store has, and takes ownership of
// the store. If over fails, the caller still owns it.
func over(store localengine.Store, o *Options) (*Engine, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	saved, err := store.Load()
	if err != nil {
		return nil, fmt.Errorf("load the store: %w", err)
	}
	if saved.Secret == ([32]byte{}) {
		saved.Secret = newSecret(o.seed())
		if _, err := store.Commit([]localengine.Change{localengine.SecretSaved(saved.Secret)}); err != nil {
			return nil, fmt.Errorf("initialize the store: %w", err)
		}
	}
	e := newEngine(o, saved.Secret)
	if err := e.load(saved); err != nil {
		return nil, err
	}
	c := &committer{
		store:         store,
		clock:         e.clock,
		wake:          make(chan struct{}, 1),
		targetReached: make(chan struct{}, 1),
		stop:          make(chan struct{}),
		stopped:       make(chan struct{}),
	}
	c.current = c.newBatch()
	e.committer = c
	go e.committer.run()
	return e, nil
}

// load fills an engine that is not shared yet.
func (e *Engine) load(saved localengine.Saved) error {
	e.ordinal.Store(saved.Ordinal)
	for _, a := range saved.Accounts {
		e.account(a.Name, true).properties = a.Properties
	}
	byOrdinal := make(map[uint64]*queueState, len(saved.Queues))
	for _, q := range saved.Queues {
		s := &queueState{
			ordinal:  q.Ordinal,
			name:     q.Name,
			metadata: q.Metadata,
			policy:   q.Policy,
			enqueued: q.Enqueued,
			receipts: q.Receipts,
			reserved: highWater{q.Enqueued, q.Receipts},
			backlog:  newBacklog(),
		}
		byOrdinal[q.Ordinal] = s
		e.account(q.Name.Account, true).queues[q.Name.Queue] = s
	}
	for _, a := range e.accounts {
		for name := range a.queues {
			a.names = append(a.names, name)
		}
		slices.Sort(a.names)
	}
	newest, err := loadMessages(saved, byOrdinal)
	if err != nil {
		return err
	}
	e.clock = newClock(max(instant(saved.Time), newest))
	slices.SortFunc(saved.Deleting, func(a, b localengine.DeletingName) int { return cmp.Compare(a.Until, b.Until) })
	at := e.clock.now()
	for _, l := range saved.Deleting {
		if instant(l.Until) > at {
			e.account(l.Name.Account, true).markDeleting(l.Name.Queue, instant(l.Until))
		}
	}
	return nil
}

// loadMessages also returns when the newest message was enqueued.
func loadMessages(saved localengine.Saved, queues map[uint64]*queueState) (newest instant, err error) {
	if saved.Messages == nil {
		return 0, nil
	}
	for state := range saved.Messages {
		s := queues[state.Queue]
		if s == nil {
			return 0, &queue.Error{Kind: localengine.ErrDamaged, Detail: fmt.Sprintf("the store has a message of queue %d, but no such queue", state.Queue)}
		}
		s.enqueued = max(s.enqueued, state.Sequence)
		s.receipts = max(s.receipts, state.Receipt)
		newest = max(newest, instant(state.Inserted))
		s.backlog.add(&message{
			sequence: state.Sequence,
			inserted: instant(state.Inserted),
			due:      instant(state.Due),
			expires:  instant(state.Expires),
			dequeues: state.Dequeues,
			receipt:  state.Receipt,
		})
	}
	return newest, nil
}

// ErrClosed means that the engine was closed. Open it again.
var ErrClosed = errors.New("the engine is closed")

// Engine holds accounts, their queues and their messages. Use [New] for one in memory, and package
// filequeue for one in a directory. It is safe for concurrent use.
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

// New returns an empty engine in memory. Its messages are lost when the process ends. Nil options
// mean the defaults; the error names an invalid option.
func New(o *Options) (*Engine, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	return newEngine(o, newSecret(o.seed())), nil
}

func newEngine(o *Options, secret [32]byte) *Engine {
	return &Engine{
		deletingFor: o.deletingFor(),
		identity:    newIdentity(secret),
		clock:       newClock(0),
		accounts:    make(map[string]*accountState),
	}
}

// Close waits for calls in progress, and releases the directory if there is one. Later calls fail
// with [ErrClosed]. A second Close does nothing.
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
// refuse the name, the first call on the queue fails. The queue is safe for concurrent use.
//
// Its depth is exact: it includes invisible messages and excludes expired ones. A clear takes O(1).
func (e *Engine) Queue(name queue.Name) queue.Manager { return e.queue(name) }

func (e *Engine) queue(name queue.Name) *handle {
	return &handle{engine: e, name: name, refused: driver.CheckName(name.Queue)}
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

// ready returns why a call must not begin: an argument is invalid, or its context has
// ended.
func ready(ctx context.Context, refused error) error {
	return cmp.Or(refused, serviceerror.Ended(ctx))
}

// run is the sorted part of a timeline: messages enqueued one after the other, which is
// most of a deep queue. Appending, taking the first and removing any take the same time at
// any depth, where a heap of a million would miss the cache at each of its twenty levels.
//
// An entry removed from the middle leaves a hole, a nil message, until the hole is first or
// there are more holes than messages.
type run struct {
	entries []slot
	first   int // index of the first message; all entries before it are holes
	offset  int // added to an index of entries gives a number that never changes
	live    int // the number of entries that are not holes
}

// slot is an entry or a hole.
type slot struct {
	entry
	skip int // in a hole: distance to the next slot that may be a message
}

func (r *run) follows(at instant, sequence uint64) bool {
	if r.live == 0 {
		return true
	}
	last := &r.entries[len(r.entries)-1] // a hole keeps its key
	return last.at < at || last.at == at && last.sequence < sequence
}

// add appends an entry and returns its number, for remove.
func (r *run) add(e entry) int {
	if r.live == 0 {
		r.clear()
	}
	r.entries = append(r.entries, slot{entry: e})
	r.live++
	return r.offset + len(r.entries) - 1
}

// clear removes all holes when there is nothing else. Numbers continue.
func (r *run) clear() {
	r.offset += len(r.entries)
	r.entries = r.entries[:0]
	if cap(r.entries) > shrinkAbove {
		r.entries = nil
	}
	r.first = 0
}

// remove makes a hole. The timeline calls tidy afterwards.
func (r *run) remove(number int) {
	i := number - r.offset
	r.entries[i].message, r.entries[i].skip = nil, 1
	r.live--
	if i == r.first {
		r.first = r.next(i)
	}
}

// next returns the index of the first message at or after i, or the length. It stores the
// distance in the hole, so that no hole is walked twice.
func (r *run) next(i int) int {
	start := i
	for i < len(r.entries) && r.entries[i].message == nil {
		i += r.entries[i].skip
	}
	if i > start {
		r.entries[start].skip = i - start
	}
	return i
}

// tidy removes the holes once they outnumber the messages, and updates the positions of the
// messages that moved. Each hole was a message once, so the cost is O(1) for each removed
// message.
func (r *run) tidy(which index) {
	if r.live == 0 {
		r.clear()
		return
	}
	if len(r.entries) <= shrinkAbove || r.live > len(r.entries)/2 {
		return
	}
	to := r.entries[:0]
	if cap(r.entries) > 4*r.live { // leave room to grow, not the peak
		to = make([]slot, 0, 2*r.live)
	}
	for i := r.first; i < len(r.entries); i = r.next(i + 1) {
		e := r.entries[i]
		e.message.position[which] = inRun(r.offset + len(to))
		to = append(to, e)
	}
	clear(r.entries[min(len(to), len(r.entries)):])
	r.entries, r.first = to, 0
}
