package producer

import (
	"context"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/isnil"
	"github.com/millrace/millrace/queue"
)

// defaultTimeout bounds one Send with all its retries.
const defaultTimeout = 30 * time.Second

// Options configure a [Producer]. Nil and the zero value mean the defaults.
type Options[T any] struct {
	// Codec encodes the body. Defaults to codec.JSON.
	Codec codec.Codec[T]

	// Format is how the text carries the body. Consumers other than Millrace read codec.Plain
	// or codec.Base64; only an envelope counts failed attempts apart from deliveries. Defaults
	// to codec.Auto, which writes an envelope.
	Format codec.Format

	// Kind names the type of the jobs on a queue of several kinds, at most codec.MaxHeadText
	// bytes. Workers that know no kinds leave such jobs to those that do. It needs an envelope.
	// Defaults to none.
	Kind string

	// Claims stores bodies that are too large for a message. It needs an envelope, and workers
	// with the same claims. See package claimcheck. Defaults to none: such a job is too large.
	Claims Claims

	// Trace returns the W3C trace context of a Send, such as what OpenTelemetry's propagator
	// writes; empty for none. It is called once for each Send with its context, before the
	// interceptors. A trace state over codec.MaxTraceState bytes is left out; anything else that
	// is no trace context is an error of the Send. Formats without an envelope carry none.
	// Defaults to no trace context.
	Trace func(ctx context.Context) (traceparent, tracestate string)

	// Timeout bounds one Send with all its retries. Negative means that only the context does.
	// Less than 1 µs, which is a number without a unit, is an error of every Send. Defaults to
	// 30 s.
	Timeout time.Duration

	// Create creates the queue when a Send finds it missing. Metadata of an existing queue does
	// not matter. Defaults to false: a missing queue is an error.
	Create bool

	// Interceptors wrap every Send, the first outermost. Defaults to none.
	Interceptors []Interceptor
}

// Producer sends jobs to one queue. Make one with [New]; the methods of the zero value return
// errors. It is safe for concurrent use.
type Producer[T any] struct {
	queue   queue.Queue
	options Options[T]
}

// New returns a producer for the queue. It sends nothing. A nil queue panics, because it is a
// mistake in the program.
func New[T any](q queue.Queue, o *Options[T]) *Producer[T] {
	if isnil.Value(q) {
		panic("producer.New: the queue is nil")
	}
	p := &Producer[T]{queue: q}
	if o != nil {
		p.options = *o
	}
	if isnil.Value(p.options.Claims) {
		p.options.Claims = nil
	}
	if p.options.Codec == nil {
		p.options.Codec = codec.JSON[T]()
	}
	if p.options.Timeout == 0 {
		p.options.Timeout = defaultTimeout
	}
	return p
}
