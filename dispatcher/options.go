package dispatcher

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/internal/poisonrecord"
	"github.com/millrace/millrace/internal/units"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// Defaults of [Options].
const (
	DefaultConcurrency = 64
	DefaultBatchSize   = queue.MaxBatch
	DefaultVisibility  = 30 * time.Second // the first
)

const (
	defaultLinger        = 100 * time.Millisecond
	defaultMinVisibility = 10 * time.Second
	defaultMaxVisibility = 10 * time.Minute
	defaultSettleTimeout = 15 * time.Second
	defaultStuckAfter    = time.Minute

	// maxDefaultMinFetch bounds the default of MinFetch: nearly a full batch.
	maxDefaultMinFetch = 28
)

// Options configure a [Dispatcher]. Nil and the zero value mean the defaults. Most fields are
// documented in full at the fields of the same names in listener.Options and its groups Fetch, Lease,
// and Wire. They are flat here: listener alone fills them in. OnWait and OnRelease exist only here.
type Options struct {
	// Format is how the text carries the body. Defaults to codec.Auto.
	Format codec.Format

	// AcceptForeign puts messages without an envelope into one. Defaults to false.
	AcceptForeign bool

	// Claims opens bodies from another store. Defaults to nil.
	Claims Claims

	// Duplicates recognizes jobs that were handled before. Defaults to nil.
	Duplicates Duplicates

	// Concurrency is how many handlers may run at the same time. Defaults to 64, or to the number
	// of Slots.
	Concurrency int

	// Slots are slots that are shared with other dispatchers. Defaults to nil.
	Slots Slots

	// BatchSize is how many messages one dequeue requests at most, 1…32. Defaults to 32.
	BatchSize int

	// MinFetch is how many slots must be free before a dequeue is sent. Defaults to a tenth of
	// Concurrency, or a sixth after a full batch, within 1…28.
	MinFetch int

	// Linger is how long free slots wait for MinFetch. Negative means not at all. Defaults to
	// 100 ms, or to a fifth of the handling time if that is longer, at most 1 s.
	Linger time.Duration

	// Visibility is how long dequeued messages are hidden. Defaults to 30 s at first, then follows
	// the handling times, within 10 s … 10 min.
	Visibility Visibility

	// Timeout ends a handler's context when it has run this long. Defaults to no time-out.
	Timeout time.Duration

	// Interceptors wrap every handler, the first outermost. Defaults to nil.
	Interceptors []Interceptor

	// RetryDelay returns how long a message waits after a failed attempt, 1 for the first.
	// Defaults to [RetryCurve] of the attempt.
	RetryDelay func(attempt int, err error) time.Duration

	// Poison decides when a message is poison and where it is moved. Defaults to five attempts
	// and the sibling queue "-poison".
	Poison poison.Policy

	// SettleTimeout is how long at least a settlement is tried; it is tried for longer while the
	// lease lasts. It bounds the settlements at the end of a drain. Defaults to 15 s.
	SettleTimeout time.Duration

	// Observer receives events of deliveries. Defaults to no functions.
	Observer Observer

	// StuckAfter is how long after its context has ended a handler that still runs is reported
	// as a [*StuckError]. Negative means never. Defaults to 1 min.
	StuckAfter time.Duration

	// GiveUp frees the slot of a handler that is reported as stuck. Defaults to false.
	GiveUp bool

	// NoSourceLimits lets what keeps failing have all the slots, and never slows down. Defaults to
	// false: see [FailingSource].
	NoSourceLimits bool

	// OnFailing is called when a source of failures becomes limited, and when that has ended. It must
	// not block. Defaults to nil.
	OnFailing func(s FailingSource, ended bool)

	// Seed makes the pauses in an outage of the handlers repeatable. Defaults to a random one.
	Seed uint64

	// OnWait is called when a caller of [Dispatcher.Reserve] waits because everything fails, or
	// has waited for 10 ms because no slot is free that [Dispatcher.Open] allows; then mayOpen
	// tells whether that could allow more. It is called again while the wait goes on, and must not
	// block. Defaults to nil.
	OnWait func(mayOpen bool)

	// OnRelease is called with the time at which a message that was given back becomes visible
	// again, unless it expires within a second, and with whether it is left to other workers. It must
	// not block. Defaults to nil.
	OnRelease func(due time.Time, forOthers bool)

	// OnError receives the errors of deliveries, renewals, stuck handlers and hooks. Its own panics
	// go to slog's default logger. Defaults to nil.
	OnError func(error)
}

func (o *Options) withDefaults(q queue.Queue) (Options, error) {
	var c Options
	if o != nil {
		c = *o
	}
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if err := envelope.CheckFormat(c.Format); err != nil {
		errs = append(errs, err)
	}
	if hook.IsNil(c.Claims) {
		c.Claims = nil
	}
	if hook.IsNil(c.Duplicates) {
		c.Duplicates = nil
	}
	for n, i := range c.Interceptors {
		if i == nil {
			refuse("interceptor %d of %d is nil", n+1, len(c.Interceptors))
		}
	}
	if c.Concurrency < 0 {
		refuse("concurrency %d must be at least 1", c.Concurrency)
	}
	if err := c.sizeSlots(); err != nil {
		errs = append(errs, err)
	}
	if c.BatchSize < 0 || c.BatchSize > queue.MaxBatch {
		refuse("Fetch.BatchSize %d is outside 1…%d", c.BatchSize, queue.MaxBatch)
	}
	if c.BatchSize == 0 {
		c.BatchSize = DefaultBatchSize
	}
	if c.MinFetch < 0 {
		refuse("Fetch.MinFetch %d must be at least 1", c.MinFetch)
	}
	var err error
	if c.Visibility, err = c.Visibility.withDefaults(); err != nil {
		errs = append(errs, err)
	}
	if c.Timeout < 0 {
		refuse("handler time-out %v must not be negative", c.Timeout)
	}
	errs = append(errs, units.Wait("handler time-out", c.Timeout), units.Wait("Fetch.Linger", c.Linger),
		units.Wait("Lease.SettleTimeout", c.SettleTimeout), units.Wait("Lease.StuckAfter", c.StuckAfter))
	policy, err := poisonrecord.Policy(c.Poison).WithDefaults(q)
	if err != nil {
		errs = append(errs, err)
	}
	c.Poison = poison.Policy(policy)
	if c.SettleTimeout < 0 {
		refuse("Lease.SettleTimeout %v must not be negative", c.SettleTimeout)
	}
	if c.SettleTimeout == 0 {
		c.SettleTimeout = defaultSettleTimeout
	}
	if c.StuckAfter == 0 {
		c.StuckAfter = defaultStuckAfter
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	if c.OnError == nil {
		c.OnError = func(error) {}
	}
	return c, errors.Join(errs...)
}

// sizeSlots sets the default of Concurrency. It returns an error if Slots cannot be used.
func (o *Options) sizeSlots() error {
	concurrency, err := o.DefaultConcurrency()
	if o.Concurrency == 0 {
		o.Concurrency = concurrency
	}
	return err
}

// DefaultConcurrency returns the default of Concurrency, which is at least 1. It is an error if
// Slots cannot be used.
func (o *Options) DefaultConcurrency() (int, error) {
	if o.Slots == nil {
		return DefaultConcurrency, nil
	}
	if hook.IsNil(o.Slots) {
		return DefaultConcurrency, fmt.Errorf("the option Slots is a nil %T: leave it out for slots of its own", o.Slots)
	}
	n, err := o.Slots.Size()
	return max(n, 1), err
}

// Observer receives events of deliveries, for metrics and tracing. Every field may be nil. The
// functions are called inline and concurrently, so they must be fast and must not block. Their
// arguments may be kept. A panic in one is contained: see [HookError].
type Observer struct {
	// Started is called before the handler runs.
	Started func(Delivery)

	// Finished is called with the duration and the error when the handler has returned.
	Finished func(Delivery, time.Duration, error)

	// Renewed is called with the visibility after a renewal; the error is not nil if it failed.
	Renewed func(Delivery, time.Duration, error)

	// Lost is called when the lease is no longer ours, with [ErrLeaseLost] or
	// [ErrLeaseExpired].
	Lost func(Delivery, error)

	// Settled is called with the outcome and the duration of the settlement requests.
	Settled func(Delivery, Outcome, time.Duration)

	// Poisoned is called with the reason and the error when the message was moved to the poison
	// queue or is kept hidden. Settled is called too.
	Poisoned func(Delivery, poison.Reason, error)
}

// thresholds replace the ones in Options.Poison while a dispatcher runs. Zero means as in the
// options.
type thresholds struct {
	maxAttempts, maxLost atomic.Int64
}

// SetThresholds replaces MaxAttempts and MaxLost of Options.Poison from now on, also for the
// handlers that are running. Zero or less means as in the options. A [Kind] with attempts of its
// own keeps them.
func (d *Dispatcher) SetThresholds(maxAttempts, maxLost int) {
	d.thresholds.maxAttempts.Store(int64(maxAttempts))
	d.thresholds.maxLost.Store(int64(maxLost))
}

// maxAttempts returns the number of the last attempt, for kinds without a number of their own.
func (d *Dispatcher) maxAttempts() int {
	if n := d.thresholds.maxAttempts.Load(); n > 0 {
		return int(n)
	}
	return d.options.Poison.MaxAttempts
}

// maxLost returns how many lost starts make a message poison.
func (d *Dispatcher) maxLost() int {
	if n := d.thresholds.maxLost.Load(); n > 0 {
		return int(n)
	}
	return d.options.Poison.MaxLost
}

// onError is the name of the hook that receives the failures of the others.
const onError = "OnError"

// guard contains the panics of the hooks. Hooks with a result are guarded at their calls.
func (o *Options) guard(of queue.Name) *hook.Guard {
	g := hook.New(func(f hook.Failure) {
		err := newHookError(of, f)
		if f.Hook == onError {
			slog.Error("hook failed", slog.Any("error", err), slog.String("stack", string(err.Stack)))
			return
		}
		o.OnError(err)
	})
	o.OnError = hook.Guard1(g, onError, o.OnError)
	o.OnWait = hook.Guard1(g, "OnWait", o.OnWait)
	o.OnRelease = hook.Guard2(g, "OnRelease", o.OnRelease)
	o.OnFailing = hook.Guard2(g, "OnFailing", o.OnFailing)
	w := &o.Observer
	w.Started = hook.Guard1(g, "Observer.Started", w.Started)
	w.Finished = hook.Guard3(g, "Observer.Finished", w.Finished)
	w.Settled = hook.Guard3(g, "Observer.Settled", w.Settled)
	w.Renewed = hook.Guard3(g, "Observer.Renewed", w.Renewed)
	w.Lost = hook.Guard2(g, "Observer.Lost", w.Lost)
	w.Poisoned = hook.Guard3(g, "Observer.Poisoned", w.Poisoned)
	return g
}
