package dispatcher

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// Defaults of [Options].
const (
	DefaultConcurrency = 64
	DefaultBatchSize   = queue.MaxBatch
)

const (
	defaultLinger        = 100 * time.Millisecond
	defaultVisibility    = 30 * time.Second
	defaultMinVisibility = 10 * time.Second
	defaultMaxVisibility = 10 * time.Minute
	defaultSettleTimeout = 15 * time.Second
	defaultStuckAfter    = time.Minute

	// mostMinFetch bounds the default of MinFetch: nearly a full batch.
	maxDefaultMinFetch = 28
)

// Options configure a [Dispatcher]. Nil and the zero value are the defaults.
type Options[T any] struct {
	// Codec reads the body. Defaults to codec.JSON.
	Codec codec.Codec[T]

	// Format says how the text carries the body. Defaults to codec.Auto.
	Format codec.Format

	// Adopt puts a message without an envelope into one when it is first given back, so
	// that attempts can be told from deliveries. Other consumers of the queue must then
	// read envelopes; here an envelope is read as one whatever the Format. Defaults to
	// false: a foreign message is never rewritten.
	Adopt bool

	// Concurrency is how many handlers run at once. Defaults to 64.
	Concurrency int

	// BatchSize is how many messages one dequeue asks for at most, 1…32.
	// Defaults to 32.
	BatchSize int

	// MinFetch is how many slots must be free before a dequeue is worth its
	// transaction; Linger overrules it. At most BatchSize counts. Defaults to a
	// tenth of Concurrency, within 1…28.
	MinFetch int

	// Linger is how long free slots wait for more before a dequeue is sent for
	// what there is. Negative means not at all. Defaults to 100 ms, or a fifth of the
	// handling time if that is more: as long as it takes, twice over, until a tenth of
	// the handlers have returned; but at most 1 s.
	Linger time.Duration

	// Visibility is how long dequeued messages are hidden; leases are renewed
	// while handlers run. Defaults to 30 s at first, then following the handling
	// time within 10 s … 10 min.
	Visibility Visibility

	// Timeout ends a handler's context when it has run this long: the context has that
	// deadline, and its cause is an [ErrTimeout]. Its lease goes on until it returns, or
	// counts as stuck. Less than 1 µs is refused: it is a number without a unit. Defaults to
	// none.
	Timeout time.Duration

	// TimeoutFor says how long the handler of one message may run, in place of Timeout.
	// Zero means Timeout, negative that there is no bound. It must not change the message.
	// Defaults to none.
	TimeoutFor func(m *Message[T]) time.Duration

	// Interceptors run around every handler, the first outermost. Defaults to none.
	Interceptors []Interceptor

	// RetryDelay says how long a message waits after a failed attempt, 1 for the
	// first. It is bounded by the message's remaining life. For some errors only, it may
	// fall back on [RetryCurve]. Poison that cannot be moved waits by it too, for a second
	// at least. Defaults to RetryCurve of the attempt.
	RetryDelay func(attempt int, err error) time.Duration

	// Poison says when a message is poison and where it goes. Defaults to five
	// attempts and the sibling queue "-poison".
	Poison poison.Policy

	// SettleTimeout bounds the delete, update or move after a handler: all repetitions
	// together, after a first try that the queue's own time-out bounds. Defaults to 15 s.
	SettleTimeout time.Duration

	// Observer is told what happens to deliveries. Defaults to nothing.
	Observer Observer

	// StuckAfter is how long after its context has ended a handler that still runs is
	// reported as a [*StuckError], with the stacks of handlers. Its lease is renewed no
	// longer then. Negative means never. Defaults to 1 min.
	StuckAfter time.Duration

	// GiveUp, if true, frees the slot of a handler that is reported as stuck, so that
	// another can run; what it returns later settles nothing. Defaults to false.
	GiveUp bool

	// Seed makes the waits repeatable that depend on no message: how long an outage of the
	// handlers is waited out. Processes that share a queue must not share it. Defaults to
	// a random one.
	Seed uint64

	// OnRelease is told when a message that was given back becomes visible again, for
	// whatever reason it was, unless its life ends within a second. It must not block.
	// Defaults to nothing.
	OnRelease func(time.Time)

	// OnError is told of every delivery that failed, as a [*DeliveryError], of renewals
	// that failed, of stuck handlers ([*StuckError]) and of functions in these options
	// that panicked ([*HookError]). It is called from many goroutines and should not
	// block. If it panics itself, slog's default logger is told. Defaults to nothing.
	OnError func(error)
}

// withDefaults returns the options with the defaults for the queue q, or every
// mistake in them at once.
func (o *Options[T]) withDefaults(q queue.Queue) (Options[T], error) {
	var c Options[T]
	if o != nil {
		c = *o
	}
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if c.Codec == nil {
		c.Codec = codec.JSON[T]()
	}
	if err := c.Format.Check(); err != nil {
		errs = append(errs, err)
	}
	if c.Concurrency < 0 {
		refuse("concurrency %d must be at least 1", c.Concurrency)
	}
	if c.Concurrency == 0 {
		c.Concurrency = DefaultConcurrency
	}
	if c.BatchSize < 0 || c.BatchSize > queue.MaxBatch {
		refuse("batch size %d is outside 1…%d (L-03)", c.BatchSize, queue.MaxBatch)
	}
	if c.BatchSize == 0 {
		c.BatchSize = DefaultBatchSize
	}
	if c.MinFetch < 0 {
		refuse("minimum fetch %d must be at least 1", c.MinFetch)
	}
	var err error
	if c.Visibility, err = c.Visibility.withDefaults(); err != nil {
		errs = append(errs, err)
	}
	if c.Timeout < 0 {
		refuse("handler time-out %v must not be negative", c.Timeout)
	}
	if lacksUnit(c.Timeout) {
		refuse("handler time-out %v is too short for any handler: give it a unit, such as %d*time.Second", c.Timeout, c.Timeout)
	}
	if c.Poison, err = c.Poison.WithDefaults(q); err != nil {
		errs = append(errs, err)
	}
	if c.SettleTimeout < 0 {
		refuse("settle time-out %v must not be negative", c.SettleTimeout)
	}
	if lacksUnit(c.SettleTimeout) {
		refuse("settle time-out %v is too short for any request: give it a unit, such as %d*time.Second", c.SettleTimeout, c.SettleTimeout)
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

// lacksUnit tells a duration that can only be a number without its unit, as in Timeout: 30,
// which compiles.
func lacksUnit(d time.Duration) bool { return d > 0 && d < time.Microsecond }
