package producer

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/retry"
	"github.com/millrace/millrace/queue"
)

// DefaultTimeout bounds one Send, all tries together.
const DefaultTimeout = 30 * time.Second

// Options configure a [Producer]. Nil and the zero value are the defaults.
type Options[T any] struct {
	// Codec writes the body. Defaults to codec.JSON.
	Codec codec.Codec[T]

	// Format says how the text carries the body. Consumers that are not Millrace read
	// codec.Plain or codec.Base64; only an envelope counts failed attempts apart from
	// deliveries. Defaults to codec.Auto, which writes an envelope.
	Format codec.Format

	// Timeout bounds one Send, all tries together. Negative means none but the
	// context's. Defaults to 30 s.
	Timeout time.Duration
}

// SendOptions say when a job appears and disappears. Nil and the zero value mean at
// once, and never.
type SendOptions = queue.EnqueueOptions

// Sent is what the service said of an accepted job.
type Sent struct {
	ID       queue.ID  // the message's id, as the handler will see it
	Inserted time.Time // when it was accepted, by the service's clock
}

// Producer sends jobs to one queue. Make one with [New].
type Producer[T any] struct {
	queue   queue.Queue
	options Options[T]
}

// New returns a producer for the queue, which must not be nil. It sends nothing.
func New[T any](q queue.Queue, o *Options[T]) *Producer[T] {
	p := &Producer[T]{queue: q}
	if o != nil {
		p.options = *o
	}
	if p.options.Codec == nil {
		p.options.Codec = codec.JSON[T]()
	}
	if p.options.Timeout == 0 {
		p.options.Timeout = DefaultTimeout
	}
	return p
}

// head names the job and says when it was sent.
func (p *Producer[T]) head() codec.Head {
	return codec.Head{ID: rand.Text(), Enqueued: time.Now()}
}

// Send puts one job on the queue and returns when it is accepted. A job that cannot
// be encoded or is too large ([queue.ErrTooLarge]) fails before anything is sent. Too large
// is one over [queue.MaxText], or over [queue.MaxRequest] with its text escaped for XML,
// whatever the queue; an envelope needs codec.Room bytes less, to record attempts in.
func (p *Producer[T]) Send(ctx context.Context, job T, o *SendOptions) (Sent, error) {
	body, err := p.options.Codec.Encode(job)
	if err != nil {
		return Sent{}, fmt.Errorf("send to %v: %w", p.queue.Name(), err)
	}
	head := p.head()
	text, err := codec.Seal(head, body, p.options.Format)
	if err != nil {
		return Sent{}, fmt.Errorf("send to %v: %w", p.queue.Name(), err)
	}
	room := 0
	if p.options.Format.HasHead() {
		room = head.Room()
	}
	if err := queue.CheckRequest(text, room); err != nil {
		return Sent{}, fmt.Errorf("send to %v: %w", p.queue.Name(), err)
	}
	if p.options.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.options.Timeout)
		defer cancel()
	}
	var accepted queue.Message
	err = retry.Do(ctx, head.ID, func(ctx context.Context) error {
		var err error
		accepted, err = p.queue.Enqueue(ctx, text, o)
		return err
	})
	if err != nil {
		return Sent{}, fmt.Errorf("send to %v: %w", p.queue.Name(), err)
	}
	return Sent{ID: accepted.ID, Inserted: accepted.Inserted}, nil
}
