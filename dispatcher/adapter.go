package dispatcher

import (
	"context"
	"errors"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/queue"
)

// Jobs is what a [Dispatcher] must know of the type of its jobs. Codec and TimeoutFor are
// documented in full at listener.Options.
type Jobs[T any] struct {
	// Handler handles the messages. It is required.
	Handler Handler[T]

	// Codec decodes the body, and encodes it for [Message.Save]. Defaults to codec.JSON.
	Codec codec.Codec[T]

	// TimeoutFor returns the time-out for one message and overrides Options.Timeout. Defaults to
	// none.
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
	return newDispatcher(q, jobs.newDeliveries, o)
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
	// ownTimeout returns the time-out for this message; zero means the one for all, negative
	// none.
	ownTimeout() time.Duration

	// callHandler calls the handler with the message.
	callHandler(ctx context.Context) error
}

// typedJob is what the delivery of a job of type T has beyond other deliveries. It implements job.
type typedJob[T any] struct {
	*delivery
	jobs    *Jobs[T]
	message Message[T] // passed to the handler
}

// typedDelivery is a delivery with its job, in one allocation.
type typedDelivery[T any] struct {
	delivery delivery
	typed    typedJob[T]
}

// newDeliveries returns n deliveries, linked by their sibling fields. They are one allocation,
// which is freed with the last of them; that one ends soon after the others.
func (j *Jobs[T]) newDeliveries(n int) *delivery {
	batch := make([]typedDelivery[T], n)
	var first *delivery
	for i := range batch {
		v := &batch[i]
		v.typed.delivery, v.typed.jobs = &v.delivery, j
		v.delivery.job, v.delivery.sibling = &v.typed, first
		first = &v.delivery
	}
	return first
}

func (v *typedJob[T]) decodeBody() error {
	body, err := v.decodeJob(v.content())
	if err != nil {
		return err
	}
	v.message = v.newMessage(body, v.head)
	return nil
}

func (v *typedJob[T]) newMessage(body T, head codec.Head) Message[T] {
	return Message[T]{
		Body: body, ID: v.queued.ID, Queue: v.dispatcher.name, Head: head,
		Attempt: v.attempt(), MaxAttempts: v.maxAttempts(), DequeueCount: v.queued.DequeueCount,
		Inserted: v.queued.Inserted, Expires: v.queued.Expires,
		delivery: v,
	}
}

func (v *typedJob[T]) ownTimeout() time.Duration { return v.timeoutOf(&v.message) }

func (v *typedJob[T]) timeoutOf(m *Message[T]) time.Duration {
	timeoutFor := v.jobs.TimeoutFor
	if timeoutFor == nil {
		return 0
	}
	var own time.Duration
	if !v.dispatcher.hooks.Call("TimeoutFor", func() { own = timeoutFor(m) }) {
		return 0
	}
	return own
}

func (v *typedJob[T]) callHandler(ctx context.Context) error {
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
