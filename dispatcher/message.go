package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/queue"
)

// Message is one delivery of a job to a handler. The handler owns it until it returns.
type Message[T any] struct {
	// Delivery describes the delivery: where the message comes from, its job id, its attempts.
	Delivery

	// Body is the job.
	Body T

	delivery *typedJob[T] // nil for a message made by a test
}

// Concurrency returns how many handlers the listener of the message may run at once, for middleware
// that makes some of them wait. 0 for a message made by a test.
func (m *Message[T]) Concurrency() int {
	if m.delivery == nil {
		return 0
	}
	return m.delivery.dispatcher.slots.capacity()
}

// AttemptsRecorded reports whether the message carries the number of its failed attempts, so that a
// [Snooze] does not count as an attempt: it has an envelope, or gets one by Options.Wire.AcceptForeign. False
// for a message made by a test.
func (m *Message[T]) AttemptsRecorded() bool { return m.delivery != nil && m.delivery.recordable() }

// errNoQueue is the error of Save for a message made by a test.
var errNoQueue = errors.New("the message does not come from a queue")

// Save replaces the body of the message while it is being handled, so that a later delivery
// continues from there: work in portions, save after each, and a crash repeats only the last
// one. The same request renews the lease. Save sets m.Body when the service has accepted the
// update. An [ErrLeaseLost] means that another worker has the message. Any other error leaves
// the body as it was, or, if the outcome is unknown, as one of the two. A message with an
// envelope keeps it; one without is rewritten in its own format.
//
// A body too large for later attempts to be recorded is [queue.ErrTooLarge], and nothing is sent.
// With Options.Claims it is stored instead, as a new one each time, and so is a body that is over
// their limit. When the service has accepted the update, the body of an earlier Save of this
// delivery is given up. The original body of the message is given up when the message is deleted,
// because a duplicate may need it; if the delivery ends otherwise that body stays stored as an
// orphan.
//
// Save of an item of a group replaces the item, and sends or stores the whole group for that. Items
// of one message save in turn. If the group is stored, because it is too large for a message, 500
// items that save once each upload it 500 times. Send such jobs in smaller groups, or one by one.
func (m *Message[T]) Save(ctx context.Context, body T) error {
	err := errNoQueue
	switch {
	case m.delivery == nil:
	case m.Items > 0:
		err = m.delivery.saveItem(ctx, m.Item, body)
	default:
		err = m.delivery.saveBody(ctx, body)
	}
	if err != nil {
		return fmt.Errorf("save the progress of message %s of %v: %w", string(m.ID), m.Queue, err)
	}
	m.Body = body
	return nil
}

// Handler handles one message. Returning nil deletes the message. An error gives it back with a
// delay that grows with the attempt. [Retry], [Snooze], [Poison] and [Discard] make errors that ask
// for something else, and [NotRun] one for middleware. A panic counts as an error, and so does a
// nil pointer stored in the error: return nil itself.
//
// The context ends when the lease is lost ([ErrLeaseLost], [ErrLeaseExpired]), when the
// time-out has passed ([ErrTimeout]), or when the worker is stopping and its grace period is
// over ([ErrStopping]); context.Cause returns which. It does not end when shutdown begins.
// [DeliveryFrom] returns the delivery of the context.
type Handler[T any] func(ctx context.Context, m *Message[T]) error

// Jobs is the part of a [Dispatcher] that depends on the type of its jobs. Codec and TimeoutFor are
// documented in full at listener.Options.
type Jobs[T any] struct {
	// Handler handles the messages. It is required.
	Handler Handler[T]

	// Codec decodes the body, and encodes it for [Message.Save]. Defaults to codec.JSON.
	Codec codec.Codec[T]

	// TimeoutFor returns the time-out for one message and overrides Options.Timeout. Defaults to
	// nil.
	TimeoutFor func(m *Message[T]) time.Duration
}

// New returns a dispatcher for the queue and its jobs. It starts and sends nothing. The error
// names every invalid option.
func New[T any](q queue.Queue, jobs Jobs[T], o *Options) (*Dispatcher, error) {
	if hook.IsNil(q) || jobs.Handler == nil {
		return nil, errors.New("dispatcher: a queue and a handler are required")
	}
	if jobs.Codec == nil {
		jobs.Codec = codec.JSON[T]()
	}
	d, err := newDispatcher(q, jobs.newDeliveries, nil, o)
	if unfit := envelope.CheckCodec(jobs.Codec); unfit != nil {
		return nil, fmt.Errorf("dispatcher of %v: %w", q.Name(), errors.Join(unfit, errors.Unwrap(err)))
	}
	return d, err
}

// job is the part of a delivery that depends on the type of its job.
type job interface {
	handling

	// decodeBody decodes the body and makes the message for the handler.
	decodeBody() error

	// decodeItem decodes an item of a group and makes the message for its handler.
	decodeItem(item int) (handling, error)
}

type handling interface {
	// ownTimeout returns the time-out for this message; zero means the one for all, negative no
	// time-out.
	ownTimeout() time.Duration

	// callHandler calls the handler with the message.
	callHandler(ctx context.Context) error
}

// typedJob is the part of a delivery that depends on the type T of its job. It implements job.
type typedJob[T any] struct {
	*delivery
	jobs     *Jobs[T]
	message  Message[T] // passed to the handler
	panicked *HookError // of the codec, in place of a handler; nil if the body was decoded
}

// typedDelivery is a delivery with its job, in one allocation.
type typedDelivery[T any] struct {
	delivery delivery
	typed    typedJob[T]
}

// newDeliveries returns n deliveries, linked by their sibling fields. They are allocated a few at a time: one by
// one costs more, and all in one is a large object, for which the runtime has no cache.
func (j *Jobs[T]) newDeliveries(n int) *delivery {
	var first *delivery
	for n > 0 {
		some := make([]typedDelivery[T], min(n, 4))
		for i := range some {
			v := &some[i]
			v.typed.delivery, v.typed.jobs = &v.delivery, j
			v.delivery.job, v.delivery.sibling = &v.typed, first
			first = &v.delivery
		}
		n -= len(some)
	}
	return first
}

// decodeBody implements job. A panic says more about this release than about the job: it counts as
// one of the handler.
func (v *typedJob[T]) decodeBody() error {
	if v.dispatcher.options.Format == codec.Auto {
		v.body, v.format = envelope.Verbatim(v.jobs.Codec, v.queued.Text, v.body, v.format)
	}
	body, err := v.decodeJob(v.content())
	if err != nil && !errors.As(err, &v.panicked) {
		return err
	}
	v.message = Message[T]{Delivery: v.described(), Body: body, delivery: v}
	return nil
}

func (v *typedJob[T]) ownTimeout() time.Duration { return v.timeoutOf(&v.message) }

func (v *typedJob[T]) timeoutOf(m *Message[T]) time.Duration {
	timeoutFor := v.jobs.TimeoutFor
	if timeoutFor == nil || v.panicked != nil {
		return 0
	}
	var own time.Duration
	if !v.dispatcher.hooks.Call("TimeoutFor", func() { own = timeoutFor(m) }) {
		return 0
	}
	return own
}

func (v *typedJob[T]) callHandler(ctx context.Context) error {
	if v.panicked != nil {
		return v.panicked
	}
	return v.jobs.Handler(ctx, &v.message)
}

// saveBody implements Message.Save.
func (v *typedJob[T]) saveBody(ctx context.Context, body T) error {
	encoded, err := v.encode(body)
	if err != nil {
		return err
	}
	return v.save(ctx, encoded)
}

func (v *typedJob[T]) decodeJob(encoded []byte) (T, error) {
	return callCodec(v.dispatcher.name, "Codec.Decode", v.jobs.Codec.Decode, encoded)
}

func (v *typedJob[T]) encode(body T) ([]byte, error) {
	return callCodec(v.dispatcher.name, "Codec.Encode", v.jobs.Codec.Encode, body)
}

// callCodec calls a method of a codec. A panic becomes an error.
func callCodec[A, R any](of queue.Name, name string, method func(A) (R, error), arg A) (result R, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = newHookError(of, hook.Caught(name, p))
		}
	}()
	return method(arg)
}

// All returns a handler that calls each of the handlers in turn with the same message and
// combines their results: poison if any asks for it, else the first error or retry, else a
// snooze, else a discard if every handler that did not succeed discards, else nil. A retry runs
// all of them again, so each must be idempotent. Without handlers, or with a nil one, it returns nil,
// which is refused like any missing handler.
func All[T any](hs ...Handler[T]) Handler[T] {
	if len(hs) == 0 || slices.ContainsFunc(hs, func(h Handler[T]) bool { return h == nil }) {
		return nil
	}
	return func(ctx context.Context, m *Message[T]) error {
		var worst error
		rank := 0
		for _, h := range hs {
			err := h(ctx, m)
			if err == nil {
				continue
			}
			if r := explicitResult(err).precedence(); r > rank {
				worst, rank = err, r
			}
		}
		return worst
	}
}

// Chain wraps a handler in middleware: the first is the outermost. If the handler or a middleware is
// nil, it returns nil, which is refused like any missing handler.
func Chain[T any](h Handler[T], ms ...Middleware[T]) Handler[T] {
	for i := len(ms) - 1; i >= 0; i-- {
		if h == nil || ms[i] == nil {
			return nil
		}
		h = ms[i](h)
	}
	return h
}

// Middleware wraps a handler, for logging, tracing, limits and the like.
type Middleware[T any] func(Handler[T]) Handler[T]

// Interceptor is middleware that does not depend on the type of the jobs, so that one serves every
// listener of a program: for logging, tracing, limits and authentication. It calls next, which runs
// the handler, with ctx or a context derived from it, and returns next's error or another. It may
// skip next, and then returns [NotRun] if the job should come again, but must not call it twice.
// It must be safe for concurrent use. [ResultOf] returns the request in an error.
type Interceptor func(ctx context.Context, d Delivery, next func(context.Context) error) error
