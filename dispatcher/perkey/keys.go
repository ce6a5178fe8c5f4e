package perkey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/keyed"
	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/queue"
)

// ErrBusy means that a job was postponed because its key was taken.
var ErrBusy = errors.New("another job of its key is running")

// Wrap returns the handler so that one at a time runs for each key of messages: Delivery.Key, which a
// producer sets by SendOptions.Key. It is safe for concurrent use.
func Wrap[T any](k *Keys, h dispatcher.Handler[T]) dispatcher.Handler[T] { return Middleware[T](k)(h) }

// Middleware is [Wrap] in the form that listener.Chain takes: perkey.Middleware[Order](keys). Go cannot
// infer the type of the job there.
func Middleware[T any](k *Keys) dispatcher.Middleware[T] {
	return MiddlewareBy(k, func(m *dispatcher.Message[T]) string { return m.Key })
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
			since, leave, delay := k.acquire(ctx, item, name, m.AttemptsRecorded(), m.Concurrency())
			if delay > 0 {
				return dispatcher.NotRun(delay, fmt.Errorf("%w: %.100q", ErrBusy, name))
			}
			defer leave()
			defer k.turns.Release(name, since)
			return next(inside, m)
		}
	}
}

// Defaults of [Options].
const (
	defaultWait     = 5 * time.Second // less than half of the shortest visibility that a listener chooses
	defaultMaxDelay = 10 * time.Minute
)

// Options configure [Keys]. Nil and the zero value mean the defaults.
type Options struct {
	// Wait is how long a job waits in its slot for its key. Negative means not at all: a job whose key is
	// taken is postponed at once. Less than 1 ms is refused as a number without a unit. Defaults
	// to 5 s, in which no lease of a default visibility needs to be renewed.
	Wait time.Duration

	// MaxDelay is for how long a job is postponed at most, 1 s … 7 days. Lower it if keys become
	// free in ways that this process does not see, because that is how long their jobs may stay hidden;
	// a flood of n jobs then costs up to n updates in that time. Defaults to 10 min.
	MaxDelay time.Duration
}

func (o *Options) validate() error {
	var errs []error
	errs = append(errs, units.Wait("the option Wait", o.Wait))
	if o.MaxDelay != 0 && (o.MaxDelay < time.Second || o.MaxDelay > queue.MaxVisibility) {
		errs = append(errs, fmt.Errorf("the option MaxDelay %v is outside 1s…%v", o.MaxDelay, queue.MaxVisibility))
	}
	return errors.Join(errs...)
}

func (o *Options) withDefaults() Options {
	return Options{Wait: cmp.Or(o.Wait, defaultWait), MaxDelay: cmp.Or(o.MaxDelay, defaultMaxDelay)}
}

// Keys knows which keys are held by handlers of this process. Make one with [New]. All listeners that
// share one share their keys. It is safe for concurrent use.
type Keys struct {
	_ [0]sync.Mutex // go vet reports copies

	turns *keyed.Turns
}

// New returns Keys of which none is held. The error names every invalid option.
func New(o *Options) (*Keys, error) {
	o = cmp.Or(o, &Options{})
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("perkey: %w", err)
	}
	c := o.withDefaults()
	return &Keys{turns: keyed.NewTurns(c.Wait, c.MaxDelay)}, nil
}

// acquire waits for the key, and an item of a group also for its turn in the group. A caller that gets
// the key must release it and call leave. Otherwise acquire returns the delay before the job should
// come again.
func (k *Keys) acquire(ctx context.Context, item keyed.Item, key string, postponable bool, slots int) (since time.Time, leave func(), delay time.Duration) {
	of := keyed.Terms{Places: 1, Postponable: postponable, MayWait: slots / 2, MayWaitHere: slots / 4}
	if item == nil {
		since, delay = k.turns.Acquire(ctx, key, of)
		return since, func() {}, delay
	}
	var acquired time.Time // not a result, which would be allocated for every job
	line := item.Each().Line([2]any{k, key})
	delay, leave = line.Acquire(ctx, item, func() (delay time.Duration) {
		acquired, delay = k.turns.Acquire(ctx, key, of)
		return delay
	})
	return acquired, leave, delay
}

// State is what [Keys.State] reports.
type State struct {
	Held    int           // keys that are held, each by a running handler
	Waiting int           // jobs that wait in their slots
	NotRun  int64         // how often jobs were given back, or items waited on, because their keys were taken
	Longest time.Duration // for how long the key has been held that has been held for longest
}

// State returns a snapshot.
func (k *Keys) State() State { return State(k.turns.State()) }
