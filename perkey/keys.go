package perkey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/keyed"
	"github.com/millrace/millrace/queue"
)

// ErrBusy means that a job was postponed because its key was taken.
var ErrBusy = errors.New("another job of its key is running")

// Middleware lets one handler at a time run for each key of messages: Head.Key, which a producer sets by
// SendOptions.Key. It is safe for concurrent use.
func Middleware[T any](k *Keys) dispatcher.Middleware[T] {
	return MiddlewareBy(k, func(m *dispatcher.Message[T]) string { return m.Head.Key })
}

// MiddlewareBy is [Middleware] with the key that the function returns for a message; "" is none. The
// function must not change the message and must be safe for concurrent use. Its panic is a failed
// attempt of the message, as a panic of the handler is.
func MiddlewareBy[T any](k *Keys, key func(m *dispatcher.Message[T]) string) dispatcher.Middleware[T] {
	return func(next dispatcher.Handler[T]) dispatcher.Handler[T] {
		return func(ctx context.Context, m *dispatcher.Message[T]) error {
			name := key(m)
			inside, item := keyed.Inside(ctx)
			if name == "" {
				return next(inside, m)
			}
			of := terms{postponable: m.AttemptsRecorded(), slots: m.Concurrency()}
			var delay time.Duration
			leave := func() {}
			if item == nil {
				delay = k.acquire(ctx, name, of)
			} else {
				line := item.Each().Line([2]any{k, name})
				delay, leave = line.Acquire(ctx, item, func() time.Duration { return k.acquire(ctx, name, of) })
			}
			if delay > 0 {
				return dispatcher.Postpone(delay, fmt.Errorf("%w: %.100q", ErrBusy, name))
			}
			defer leave()
			defer k.release(name)
			return next(inside, m)
		}
	}
}

// terms says how a job may wait.
type terms struct {
	postponable bool // whether it can be given back without an attempt
	slots       int  // of its listener
}

// places returns how many slots may be taken by jobs that wait, in all and of one key.
func (t terms) places() (all, ofKey int) {
	return t.slots / 2, t.slots / 4
}

// Defaults of [Options].
const (
	defaultWait     = 5 * time.Second // less than half of the shortest visibility that a listener chooses
	defaultMaxDelay = 10 * time.Minute
)

// Options configure [Keys]. Nil and the zero value mean the defaults.
type Options struct {
	// Wait is how long a job waits in its slot for its key. Negative means not at all: a job whose key is
	// taken is postponed at once. Less than 1 µs is refused as a number without a unit. Defaults
	// to 5 s, in which no lease of a default visibility needs to be renewed.
	Wait time.Duration

	// MaxDelay is for how long a job is postponed at most, 1 s … 7 days. Lower it if keys become
	// free in ways that this process does not see, because that is how long their jobs may stay hidden;
	// a flood of n jobs then costs up to n updates in that time. Defaults to 10 min.
	MaxDelay time.Duration
}

func (o *Options) setDefaults() error {
	var errs []error
	if o.Wait > 0 && o.Wait < time.Microsecond {
		errs = append(errs, fmt.Errorf("the option Wait %v is too short: give it a unit, such as 5*time.Second", o.Wait))
	}
	if o.MaxDelay != 0 && (o.MaxDelay < time.Second || o.MaxDelay > queue.MaxVisibility) {
		errs = append(errs, fmt.Errorf("the option MaxDelay %v is outside 1s…%v", o.MaxDelay, queue.MaxVisibility))
	}
	o.Wait = cmp.Or(o.Wait, defaultWait)
	o.MaxDelay = cmp.Or(o.MaxDelay, defaultMaxDelay)
	return errors.Join(errs...)
}

// Keys knows which keys are held by handlers of this process. Make one with [New]. All listeners that
// share one share their keys. It is safe for concurrent use.
type Keys struct {
	options Options

	mu        sync.Mutex
	held      map[string]*turns // by key, while a handler holds it; guarded by mu
	lines     lines             // of keys that are free; guarded by mu
	waiting   int               // jobs that wait for their turns; guarded by mu
	typical   time.Duration     // how long keys are held, on average; guarded by mu
	postponed int64             // jobs that were given back; guarded by mu
}

// New returns Keys of which none is held. The error names every invalid option.
func New(o *Options) (*Keys, error) {
	k := &Keys{held: make(map[string]*turns), lines: make(lines)}
	if o != nil {
		k.options = *o
	}
	if err := k.options.setDefaults(); err != nil {
		return nil, fmt.Errorf("perkey: %w", err)
	}
	return k, nil
}

// State is what [Keys.State] reports.
type State struct {
	Held      int           // keys that are held, each by a running handler
	Waiting   int           // jobs that wait in their slots
	Postponed int64         // how often jobs were given back, or items waited on, because their keys were taken
	Longest   time.Duration // for how long the key has been held that has been held for longest
}

// State returns a snapshot.
func (k *Keys) State() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := State{Held: len(k.held), Waiting: k.waiting, Postponed: k.postponed}
	now := time.Now()
	for _, t := range k.held {
		s.Longest = max(s.Longest, now.Sub(t.since))
	}
	return s
}

// acquire returns zero when the caller holds the key, and must release it. Otherwise it returns
// after how long the job should come again.
func (k *Keys) acquire(ctx context.Context, key string, of terms) (delay time.Duration) {
	w, limit, delay := k.enter(ctx, key, of)
	if w == nil {
		return delay
	}
	var expired <-chan time.Time
	if of.postponable {
		expired = time.After(limit)
	}
	select {
	case <-w:
	case <-expired:
	case <-ctx.Done():
	}
	return k.endWait(ctx, key, w, of)
}

// enter gives the key to the job if it is free. Otherwise it returns the job as one that waits, and for
// how long it may, or after how long it should come again.
func (k *Keys) enter(ctx context.Context, key string, of terms) (w waiter, limit, delay time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	t := k.held[key]
	if t == nil {
		k.held[key] = k.lines.take(key, k.typical, now)
		return nil, 0, 0
	}
	if limit = k.patience(ctx, now, t, of); of.postponable && limit <= 0 {
		return nil, 0, k.postpone(now, t, of)
	}
	w = make(waiter)
	t.waiters = append(t.waiters, w)
	k.waiting++
	return w, limit, 0
}

// patience returns for how long a job may wait in its slot; zero or less if it should not begin to.
// Requires mu.
func (k *Keys) patience(ctx context.Context, now time.Time, t *turns, of terms) time.Duration {
	all, ofKey := of.places()
	if k.waiting >= all || len(t.waiters) >= ofKey {
		return 0
	}
	limit := k.options.Wait
	if deadline, ok := ctx.Deadline(); ok { // of the handler, which is to have most of it
		limit = min(limit, deadline.Sub(now)/10)
	}
	if t.expected(now) > limit {
		return 0
	}
	return limit
}

// postpone returns after how long a job should come again: when it is expected to be its turn. Requires mu.
func (k *Keys) postpone(now time.Time, t *turns, of terms) time.Duration {
	k.postponed++
	_, ofKey := of.places()
	// Messages are hidden for whole seconds: no more come up in one than can run or wait then.
	step := max(t.length(now), time.Second/time.Duration(ofKey+1))
	return t.join(now, step, k.options.MaxDelay)
}

// endWait returns zero if a job that has waited holds the key, and otherwise after how long it should
// come again. One whose context has ended passes its turn on.
func (k *Keys) endWait(ctx context.Context, key string, w waiter, of terms) (delay time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	t := k.held[key] // at least one job holds the key, or this one does
	select {
	case <-w:
		if ctx.Err() == nil {
			return 0
		}
		defer k.next(key, t, now)
	default:
		t.waiters = slices.DeleteFunc(t.waiters, func(other waiter) bool { return other == w })
		k.waiting--
	}
	return k.postpone(now, t, of)
}

// release ends the turn of the job that holds the key.
func (k *Keys) release(key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	t := k.held[key]
	took := now.Sub(t.since)
	k.typical, t.typical = average(k.typical, took), average(t.typical, took)
	k.next(key, t, now)
}

// next gives the key to the job that has waited for longest, or makes it free. Requires mu.
func (k *Keys) next(key string, t *turns, now time.Time) {
	if len(t.waiters) == 0 {
		delete(k.held, key)
		k.lines.put(key, t, now)
		return
	}
	w := t.waiters[0]
	t.waiters = slices.Delete(t.waiters, 0, 1)
	k.waiting--
	t.since = now
	close(w)
}

func average(before, another time.Duration) time.Duration {
	if before == 0 {
		return another
	}
	return before + (another-before)/8
}

// turns are those of the jobs of one key while it is held. All fields are guarded by Keys.mu.
type turns struct {
	since   time.Time     // when the job began that holds the key
	waiters []waiter      // in the order in which they came
	typical time.Duration // how long jobs of this key hold it, on average; of all keys until one has ended
	lineEnd time.Time     // when the turn is over, as expected, of the job that was postponed last
}

// waiter is a job that waits in its slot. It is closed when the job holds the key.
type waiter chan struct{}

// length returns how long a turn is expected to last. A job that runs already for longer than others has
// shown that they can.
func (t *turns) length(now time.Time) time.Duration { return max(t.typical, now.Sub(t.since)) }

// expected returns after how long those that are in the process now are expected to be done. A job that has
// run for longer than others takes as long again, as far as anybody knows.
func (t *turns) expected(now time.Time) time.Duration {
	ran := now.Sub(t.since)
	rest := t.typical - ran
	if rest <= 0 {
		rest = ran
	}
	return rest + time.Duration(len(t.waiters))*t.length(now)
}

// join gives a job the next place in the line of those that are to come again. It returns after how long its
// turn is expected, at least a second and at most maxDelay. What is beyond that has no place yet.
func (t *turns) join(now time.Time, step, maxDelay time.Duration) time.Duration {
	turn := now.Add(t.expected(now))
	if t.lineEnd.After(turn) {
		turn = t.lineEnd
	}
	delay := turn.Sub(now)
	if delay >= maxDelay {
		return maxDelay
	}
	t.lineEnd = turn.Add(step)
	return max(delay, time.Second)
}

// A key has no turns while it is free, but the jobs that were postponed have places in its line until they
// come again. Without it those that come too early would be given the same places once more.
const (
	maxLines   = 1024 // keys whose lines are remembered
	maxLineKey = 256  // bytes of such a key, as many as a producer may set
)

// line is what is remembered of a key that is free.
type line struct {
	end     time.Time
	typical time.Duration
}

// lines are those of keys that are free. They are guarded by Keys.mu.
type lines map[string]line

// put remembers the line of a key, if somebody is in it. When there are too many others it takes the place of
// one that has passed, or of any.
func (l lines) put(key string, t *turns, now time.Time) {
	if !t.lineEnd.After(now) || len(key) > maxLineKey {
		return
	}
	if len(l) >= maxLines {
		maps.DeleteFunc(l, func(_ string, one line) bool { return !one.end.After(now) })
	}
	for other := range l {
		if len(l) < maxLines {
			break
		}
		delete(l, other)
	}
	l[key] = line{t.lineEnd, t.typical}
}

func (l lines) take(key string, typical time.Duration, now time.Time) *turns {
	one, found := l[key]
	if !found {
		return &turns{since: now, typical: typical}
	}
	delete(l, key)
	return &turns{since: now, typical: one.typical, lineEnd: one.end}
}
