package producer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/isnil"
	"github.com/millrace/millrace/internal/retry"
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

// SendOptions set the delay and the TTL of a job. Nil and the zero value mean that it is
// visible at once and never expires.
type SendOptions = queue.EnqueueOptions

// Sent is the service's response for an accepted job.
type Sent struct {
	ID       queue.ID  // the message id, as the handler will see it
	Inserted time.Time // when it was accepted, by the service's clock
}

// Producer sends jobs to one queue. Make one with [New]; Send of the zero value is an error. It
// is safe for concurrent use.
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
	if p.options.Codec == nil {
		p.options.Codec = codec.JSON[T]()
	}
	if p.options.Timeout == 0 {
		p.options.Timeout = defaultTimeout
	}
	return p
}

// errZero is the error of the zero Producer.
var errZero = errors.New("send: the producer was not made with producer.New")

// Send sends one job and returns when the service has accepted it. A job that cannot be encoded
// or is too large ([queue.ErrTooLarge]) fails before anything is sent. The limits are
// [queue.MaxText], and [queue.MaxRequest] for the text escaped for XML, whatever the queue; an
// envelope must leave codec.Room bytes free, for attempts to be recorded in.
func (p *Producer[T]) Send(ctx context.Context, job T, o *SendOptions) (Sent, error) {
	if p == nil || p.queue == nil {
		return Sent{}, errZero
	}
	if d := p.options.Timeout; d > 0 && d < time.Microsecond { // a number without a unit compiles
		return Sent{}, fmt.Errorf("send to %v: Timeout %v is too short for any request: give it a unit, such as %d*time.Second",
			p.queue.Name(), d, d)
	}
	s := &Sending{Queue: p.queue.Name(), Head: codec.Head{ID: rand.Text(), Enqueued: time.Now()}}
	if o != nil {
		s.Options = *o
	}
	body, err := p.options.Codec.Encode(job)
	if err == nil {
		if p.options.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, p.options.Timeout)
			defer cancel()
		}
		err = p.intercepted(s, body)(ctx)
	}
	if err != nil {
		return Sent{}, fmt.Errorf("send to %v: %w", s.Queue, err)
	}
	return s.Sent, nil
}

// enqueue seals the body and sends it.
func (p *Producer[T]) enqueue(ctx context.Context, s *Sending, body []byte) error {
	text, err := codec.Seal(s.Head, body, p.options.Format)
	if err != nil {
		return err
	}
	room := 0
	if p.options.Format.HasHead() {
		room = s.Head.Room()
	}
	if err := queue.CheckRequest(text, room); err != nil {
		return err
	}
	return retry.Do(ctx, s.Head.ID, queue.Transient, func(ctx context.Context) error {
		accepted, err := p.queue.Enqueue(ctx, text, &s.Options)
		if p.options.Create && errors.Is(err, queue.ErrQueueMissing) {
			if err = p.queue.Create(ctx, nil); err == nil || errors.Is(err, queue.ErrQueueExists) {
				accepted, err = p.queue.Enqueue(ctx, text, &s.Options)
			}
		}
		s.Sent = Sent{ID: accepted.ID, Inserted: accepted.Inserted}
		return err
	})
}
