package listener

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/dispatcher"
	"github.com/millrace/millrace/internal/isnil"
	"github.com/millrace/millrace/queue"
	"github.com/millrace/millrace/scaling"
)

// Defaults of [Options] and [Loops].
const (
	defaultGrace = 30 * time.Second
	defaultPause = 30 * time.Second
)

// Options configure a [Listener]. Nil and the zero value are the defaults.
type Options[T any] struct {
	// Codec reads the body. Defaults to codec.JSON.
	Codec codec.Codec[T]

	// Format says how the text carries the body. Defaults to codec.Auto, which
	// reads envelopes, and JSON as it stands and in Base64.
	Format codec.Format

	// Adopt puts a message without an envelope into one when it is first given back, so
	// that attempts can be told from deliveries; an envelope is read as one whatever the
	// Format. Defaults to false: a foreign message is never rewritten.
	Adopt bool

	// Create makes the queue when it is missing, at the start and later; metadata that it
	// has does not matter. Defaults to false: a missing queue is waited for.
	Create bool

	// Concurrency is how many handlers run at once. Defaults to 64.
	Concurrency int

	// BatchSize is how many messages one dequeue asks for at most, 1…32. Defaults
	// to 32.
	BatchSize int

	// MinFetch is how many slots must be free before a dequeue is worth its
	// transaction; Linger overrules it. Defaults to a tenth of Concurrency, within
	// 1…28.
	MinFetch int

	// Linger is how long free slots wait for more before a dequeue is sent for what
	// there is. Negative means not at all. Defaults to 100 ms, or a fifth of the handling
	// time if that is more, at most 1 s.
	Linger time.Duration

	// Loops bounds how many dequeue loops run. Defaults to 1 … what Concurrency
	// needs.
	Loops Loops

	// Idle says how long a loop waits when the queue is empty. It is refused beside
	// QueueEmpty, which decides in its place. Defaults to 100 ms … 1 s on the curve of
	// scaling.Curve.
	Idle Idle

	// QueueEmpty, if set, decides after every empty poll in place of Idle: given how
	// many polls of this loop in a row were empty, how long to wait and whether the
	// loop ends (L-05). Loops.Min of them never end. It is called from every loop.
	// Defaults to Idle's curve, ending when it has reached its maximum (L-24).
	QueueEmpty func(idleCount int) (wait time.Duration, stop bool)

	// QueueWorkDetected says how many loops a load deserves; it is asked when work
	// appears on an idle queue, at the start, and while full batches keep coming
	// (L-28, X-11). The answer is kept within Loops. Package scaling has rules
	// to choose from. Defaults to scaling.PerBatch.
	QueueWorkDetected func(Load) int

	// Visibility is how long dequeued messages are hidden; leases are renewed while
	// handlers run. Defaults to 30 s at first, then following the handling time
	// within 10 s … 10 min.
	Visibility Visibility

	// Interceptors run around every handler, the first outermost: middleware that does not
	// depend on T. Defaults to none.
	Interceptors []Interceptor

	// Timeout ends a handler's context when it has run this long: the context has that
	// deadline, and its cause is an [ErrTimeout]. Less than 1 µs is refused: it is a number
	// without a unit. Defaults to none.
	Timeout time.Duration

	// TimeoutFor says how long the handler of one message may run, in place of Timeout.
	// Zero means Timeout, negative that there is no bound. It must not change the message.
	// Defaults to none.
	TimeoutFor func(m *Message[T]) time.Duration

	// RetryDelay says how long a message waits after a failed attempt, 1 for the
	// first. Poison that cannot be moved waits by it too, for a second at least.
	// Defaults to [RetryCurve]: attempt⁴ seconds ± 10 %, at most 1 h.
	RetryDelay func(attempt int, err error) time.Duration

	// Poison says when a message is poison and where it goes. Defaults to five
	// attempts and the sibling queue "-poison".
	Poison PoisonPolicy

	// Grace is how long handlers may finish after the stop. Negative means not at
	// all: they are cancelled at once. Less than 1 µs is refused: it is a number without a
	// unit. [Listener.Run] returns at the latest when Grace, SettleTimeout and two seconds
	// have passed since the stop. That should be less than what the platform leaves after
	// its signal. Kubernetes leaves 30 s unless terminationGracePeriodSeconds says otherwise,
	// so with these defaults it has to say 50, or they have to be smaller, such as 20 s and
	// 5 s. Defaults to 30 s.
	Grace time.Duration

	// SettleTimeout bounds the settlement of a message: all repetitions together, after a
	// first try that the queue's own time-out bounds. At the stop it also bounds how long
	// cancelled handlers and settlements are waited for: see Grace. Defaults to 15 s.
	SettleTimeout time.Duration

	// Observer is told what happens. Defaults to nothing.
	Observer Observer

	// StuckAfter is how long after its context has ended a handler that still runs is
	// reported as a [*StuckError] and loses its lease. Negative means never.
	// Defaults to 1 min.
	StuckAfter time.Duration

	// GiveUp, if true, frees the slot of a handler that is reported as stuck. Defaults to
	// false.
	GiveUp bool

	// Seed makes the spread of all waits repeatable. Processes that share a queue must
	// not share it. Defaults to a random one.
	Seed uint64

	// OnError is told of every error: polls, renewals, deliveries that failed as a
	// [*DeliveryError] (L-16, V-08), and functions in these options that
	// panicked as a [*HookError]. It is called from many goroutines and should
	// not block. Defaults to nothing.
	OnError func(error)

	// Logger is told when the listener starts, drains and ends, and of errors. Of errors
	// whose texts differ in numbers and ids alone it gets one line in ten seconds, with the
	// number of those left out; of messages that are moved to the poison queue and of panics
	// it gets every one. Defaults to slog.Default().
	Logger *slog.Logger
}

// withDefaults returns the options of the listener itself with their defaults, or
// every mistake in them; the dispatcher checks its own.
func (o *Options[T]) withDefaults() (Options[T], error) {
	var c Options[T]
	if o != nil {
		c = *o
	}
	var errs []error

	if c.Concurrency == 0 {
		c.Concurrency = dispatcher.DefaultConcurrency
	}
	if c.BatchSize == 0 {
		c.BatchSize = dispatcher.DefaultBatchSize
	}
	errs = append(errs, c.Loops.check(), idleBesideHook(c.Idle, c.QueueEmpty != nil))
	var err error
	if c.Idle, err = idleWithDefaults(c.Idle); err != nil {
		errs = append(errs, err)
	}
	if c.QueueWorkDetected == nil {
		c.QueueWorkDetected = scaling.PerBatch
	}
	if c.Grace > 0 && c.Grace < time.Microsecond { // a number without its unit, which compiles
		errs = append(errs, fmt.Errorf("grace %v is too short for anything: give it a unit, such as %d*time.Second, or a negative one for none", c.Grace, c.Grace))
	}
	if c.Grace == 0 {
		c.Grace = defaultGrace
	}
	if c.Seed == 0 {
		c.Seed = rand.Uint64()
	}
	if c.OnError == nil {
		c.OnError = func(error) {}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, errors.Join(errs...)
}

// dispatcher returns the part of the options that is the dispatcher's.
func (o *Options[T]) dispatcher(onError func(error), onRelease func(time.Time)) *dispatcher.Options[T] {
	return &dispatcher.Options[T]{
		Codec: o.Codec, Format: o.Format, Adopt: o.Adopt,
		Concurrency: o.Concurrency, BatchSize: o.BatchSize, MinFetch: o.MinFetch, Linger: o.Linger,
		Visibility: o.Visibility, Interceptors: o.Interceptors, Timeout: o.Timeout, TimeoutFor: o.TimeoutFor, RetryDelay: o.RetryDelay, Poison: o.Poison,
		SettleTimeout: o.SettleTimeout, StuckAfter: o.StuckAfter, GiveUp: o.GiveUp, Seed: o.Seed,
		Observer: o.Observer.dispatcher(), OnError: onError, OnRelease: onRelease,
	}
}

// check refuses what no option can mend.
func check[T any](q queue.Queue, h Handler[T]) error {
	if isnil.Value(q) {
		return errors.New("a listener needs a queue, and got nil: make it with New")
	}
	if h == nil {
		return fmt.Errorf("listener of %v needs a handler", q.Name())
	}
	return nil
}
