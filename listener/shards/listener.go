package shards

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/dispatcher/slots"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/listener"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/queue/metered"
)

// Options configure a [Listener]. Nil and the zero value mean the defaults.
type Options[T any] struct {
	// Listener are the options of the listener of every shard, OnError and Logger included.
	// Its Concurrency is how many handlers of one shard may run at once, and defaults to the number of
	// shared slots. A Seed is mixed with the name of the shard, so that shards do not poll in step.
	// Its Slots must not be set: they are those of Shared. Defaults to the defaults of a listener.
	Listener *listener.Options[T]

	// Slots is how many handlers of all shards together may run at once, when Shared is nil. If
	// there are more shards than slots, they take turns. Defaults to 64.
	Slots int

	// Shared are the slots that the shards use, so that they share them with other listeners. Every
	// shard is a member. Defaults to nil: the shards have Slots slots of their own.
	Shared *slots.Shared

	// Member is how each shard takes part. Weight, Reserve and Rank are those of one
	// shard, not of all together; Name defaults to that of the queue. Defaults to the defaults of a
	// member: all shards are alike.
	Member *slots.MemberOptions

	// Settle is how long a shard that is being removed must have been empty before its listener
	// stops. It should be longer than any sender can go on placing messages on it: see
	// [Listener.Remove]. Negative means that it stops when it is first found empty. Defaults to 5 min.
	Settle time.Duration
}

// The defaults.
const (
	defaultSlots  = 64
	defaultSettle = 5 * time.Minute
)

// withDefaults returns the options with their defaults. The caller may reuse its structs.
func (o *Options[T]) withDefaults() Options[T] {
	c := *cmp.Or(o, &Options[T]{})
	own := *cmp.Or(c.Listener, &listener.Options[T]{})
	own.Logger = cmp.Or(own.Logger, slog.Default())
	c.Listener = &own
	member := *cmp.Or(c.Member, &slots.MemberOptions{})
	c.Member = &member
	if c.Slots == 0 && c.Shared == nil {
		c.Slots = defaultSlots
	}
	c.Settle = cmp.Or(c.Settle, defaultSettle)
	return c
}

func (o *Options[T]) validate() error {
	switch {
	case o.Listener.Slots != nil:
		return errors.New("shards: Options.Listener.Slots is set: the slots of shards are those of Options.Shared")
	case o.Shared != nil && o.Slots != 0:
		return errors.New("shards: Options.Slots and Options.Shared are both set: use one of them")
	case o.Shared == nil && o.Slots < 1:
		return fmt.Errorf("shards: %d slots: there must be at least 1", o.Slots)
	}
	return units.Wait("shards: Options.Settle", o.Settle)
}

func (o *Options[T]) member(name queue.Name) *slots.MemberOptions {
	m := *o.Member
	m.Name = cmp.Or(m.Name, name.String())
	return &m
}

func (o *Options[T]) of(m *slots.Member, name queue.Name) *listener.Options[T] {
	own := *o.Listener
	own.Slots = m
	if own.Seed != 0 {
		own.Seed = seedOf(own.Seed, name)
	}
	return &own
}

// seedOf returns the seed of a shard. It does not depend on what other shards there are.
func seedOf(seed uint64, name queue.Name) uint64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%x/%v", seed, name) // a hash never fails
	return max(h.Sum64(), 1)                   // zero would be a random one
}

// Listener takes jobs off the queues of its shards, with a [listener.Listener] for each, which share
// one set of slots. Make one with [New] or [NewKinds]. It is safe for concurrent use;
// [Listener.Run] runs it once.
type Listener[T any] struct {
	listen  listening[T]
	options Options[T] // with defaults
	slots   *slots.Shared
	seed    uint64 // of the waits of shards that rest

	readings *metered.Meter // of the depth, for removals

	hopeless chan struct{} // buffered, one: the service refuses every shard
	work     sync.WaitGroup

	mu     sync.Mutex
	phase  listener.Phase  // guarded by mu
	ctx    context.Context // of the run; nil before Run; guarded by mu
	stop   func()          // ends ctx; nil before Run; guarded by mu
	halted bool            // by Halt; guarded by mu
	shards []*shard[T]     // guarded by mu
	past   listener.State  // the counts of listeners that have ended; guarded by mu
	paused bool            // by Pause; guarded by mu
	failed []error         // of shards, for Run to return; guarded by mu
}

// listening makes the listener of a shard, or returns the error in its options.
type listening[T any] func(queue.Queue, *listener.Options[T]) (*listener.Listener[T], error)

// New returns a listener over these queues. It starts and sends nothing. The error names invalid
// options, a missing handler, and a queue that is nil or passed twice.
func New[T any](shards []queue.Queue, h listener.Handler[T], o *Options[T]) (*Listener[T], error) {
	return newListener(shards, o, func(q queue.Queue, o *listener.Options[T]) (*listener.Listener[T], error) {
		l := listener.New(q, h, o)
		return l, l.Check()
	})
}

// NewKinds returns a listener over queues with jobs of several kinds: see [listener.NewKinds]. The
// error names what that function refuses, and a queue that is nil or passed twice.
func NewKinds(shards []queue.Queue, kinds []listener.Kind, o *Options[any]) (*Listener[any], error) {
	kinds = slices.Clone(kinds) // the caller may reuse its slice
	return newListener(shards, o, func(q queue.Queue, o *listener.Options[any]) (*listener.Listener[any], error) {
		return listener.NewKinds(q, kinds, o)
	})
}

func newListener[T any](shards []queue.Queue, o *Options[T], listen listening[T]) (*Listener[T], error) {
	l := &Listener[T]{
		listen: listen, options: o.withDefaults(),
		readings: new(metered.Meter), hopeless: make(chan struct{}, 1),
	}
	if l.seed = l.options.Listener.Seed; l.seed == 0 {
		l.seed = rand.Uint64() // processes must not try a shard in step
	}
	err := l.options.validate()
	if err != nil {
		return nil, err
	}
	if l.slots = l.options.Shared; l.slots == nil {
		if l.slots, err = slots.NewShared(&slots.SharedOptions{Slots: l.options.Slots}); err != nil {
			return nil, err
		}
	}
	for _, q := range shards {
		if err := l.Add(q); err != nil { // the next ones have the same mistake in their options
			for _, s := range l.shards {
				s.unreserve()
			}
			return nil, err
		}
	}
	return l, nil
}

// Run takes jobs off all shards until ctx ends, then drains them and returns nil. It returns early if
// there is no shard, or if the service refuses every shard as unauthorized or invalid. A shard
// that is refused while others are not rests alone: its error goes to OnError as an [*Error], and it is
// tried again, at first after a second and then ever later, up to a minute. Shards that are refused when
// ctx ends are in the error that Run returns, and so are handlers that did not stop. Handlers see
// the values of ctx, not its end. A listener runs only once.
func (l *Listener[T]) Run(ctx context.Context) error {
	run, stop := context.WithCancel(ctx)
	defer stop()
	if err := l.start(run, stop); err != nil {
		return err
	}
	select {
	case <-run.Done(): // by ctx or by Halt
	case <-l.hopeless:
	}
	l.enter(listener.Draining) // no shard is added any more
	stop()
	l.work.Wait()
	l.enter(listener.Stopped)
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.failed...)
}

// start starts the shards, until stop is called.
func (l *Listener[T]) start(ctx context.Context, stop func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase != listener.Waiting {
		return errors.New("shards: the listener has already run: make a new one")
	}
	if len(l.shards) == 0 {
		return errors.New("shards: there is no shard: pass one queue at least")
	}
	l.phase, l.ctx, l.stop = listener.Running, ctx, stop
	if l.halted {
		stop()
	}
	for _, s := range l.shards {
		l.work.Go(func() { s.run(ctx) })
	}
	return nil
}

func (l *Listener[T]) enter(p listener.Phase) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.phase = p
	if p != listener.Stopped {
		return
	}
	for _, s := range l.shards {
		s.endRemoval(fmt.Errorf("shards: remove %v: the listener has stopped before the shard was empty for long enough: it may have messages", s.name))
	}
}

// Halt stops all shards without a grace period, or ends a grace period: see
// [listener.Listener.Halt]. It may be called at any time and more than once.
func (l *Listener[T]) Halt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.halted = true
	if l.stop != nil {
		l.stop() // first: a listener that ends before its context was refused
	}
	for _, s := range l.shards {
		s.listener.Halt()
	}
}

// Pause stops the fetching from all shards, those that are added later too: see
// [listener.Listener.Pause].
func (l *Listener[T]) Pause() { l.setPaused(true) }

// Resume undoes [Listener.Pause]: see [listener.Listener.Resume].
func (l *Listener[T]) Resume() { l.setPaused(false) }

// setPaused pauses or resumes the shards, which may call hooks and so must not happen under mu. Of calls
// at the same time the one that finds another decision than its own repeats the newest.
func (l *Listener[T]) setPaused(on bool) {
	l.mu.Lock()
	l.paused = on
	l.mu.Unlock()
	for again := true; again; {
		listeners, on := l.listeners()
		for _, one := range listeners {
			setPaused(one, on)
		}
		_, now := l.listeners()
		again = now != on
	}
}

func setPaused[T any](one *listener.Listener[T], on bool) {
	if on {
		one.Pause()
	} else {
		one.Resume()
	}
}

// listeners returns the listeners of all shards, and whether they are to be paused.
func (l *Listener[T]) listeners() (all []*listener.Listener[T], paused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.shards {
		all = append(all, s.listener)
	}
	return all, l.paused
}

// Add adds a shard: it is listened to from now on, or from Run on. Senders may place messages on it
// when all processes, or one at least, have added it: see the package comment for the order of
// steps. A shard that is being removed stays. It is an error to add a queue twice, or to a
// listener that has stopped. Add sends nothing itself.
func (l *Listener[T]) Add(q queue.Queue) error {
	if hook.IsNil(q) {
		return errors.New("shards: a shard has no queue: it is nil")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.phase > listener.Running {
		return fmt.Errorf("shards: add %v: the listener has stopped", q.Name())
	}
	if s := l.find(q.Name()); s != nil {
		if !s.endRemoval(fmt.Errorf("shards: remove %v: it was added again meanwhile", s.name)) {
			return fmt.Errorf("shards: add %v: it is a shard already", q.Name())
		}
		return nil
	}
	s, err := newShard(l, q)
	if err != nil {
		return err
	}
	l.shards = append(l.shards, s)
	if l.phase == listener.Running {
		l.work.Go(func() { s.run(l.ctx) })
	}
	return nil
}

// find returns the shard with this name, or nil. Requires mu.
func (l *Listener[T]) find(name queue.Name) *shard[T] {
	i := slices.IndexFunc(l.shards, func(s *shard[T]) bool { return s.name == name })
	if i < 0 {
		return nil
	}
	return l.shards[i]
}
