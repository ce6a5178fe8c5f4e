package producer

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/hook"
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

	// Kind names the type of the jobs on a queue of several kinds, at most 256
	// bytes. Workers that know no kinds leave such jobs to those that do. It needs an envelope.
	// Defaults to none.
	Kind string

	// Claims stores bodies that are too large for a message. It needs an envelope, and workers
	// with the same claims. See package claimcheck. A body that is not stored a second before the Timeout is
	// a blob.ErrUnavailable, and nothing is sent. Defaults to none: such a job is too large.
	Claims Claims

	// Trace returns the W3C trace context of a Send, such as what OpenTelemetry's propagator
	// writes; empty for none. It is called once for each Send with its context, before the
	// interceptors. A trace state over 512 bytes is left out; anything else that
	// is no trace context is an error of the Send. Formats without an envelope carry none.
	// Defaults to no trace context.
	Trace func(ctx context.Context) (traceparent, tracestate string)

	// Timeout bounds one Send with all its retries. Negative means that only the context does. No retry
	// begins in the last second before it or before the deadline of the context, or in the second half of
	// a shorter time, so that a job is not handled although its Send has failed.
	// Less than 1 ms, which is a number without a unit, is an error of every Send. Defaults to
	// 30 s.
	Timeout time.Duration

	// Create creates the queue when a Send finds it missing. Metadata of an existing queue does
	// not matter. Defaults to false: a missing queue is an error.
	Create bool

	// Wakeups is told of every message that was put on the queue, or may have been, so that its
	// workers need not poll. The event names the queue that the message is in, one of several if the sender
	// stands for several, which are told at the same time. It is told after each Send and SendGroup, after the last job of a SendAll, and once
	// a second during one. For a delayed job it is told when that becomes visible; those of a SendAll
	// that become visible in the same second have one event. A publisher that fails or panics
	// fails no Send, because the message is on the queue. Send waits for the publisher, which must
	// return when its context ends: after a second, or at the Timeout if that comes first. Defaults
	// to none: workers poll.
	Wakeups Wakeups

	// WakeupDepth leaves Wakeups alone until the queue has this many messages, hidden ones included;
	// fewer wait for a worker's poll, so choose it where work may wait. An event follows every reading
	// of the depth that is high enough. A reading is a request, and a Send that reads takes longer by
	// it: one when this producer has sent as many jobs as were missing at the last reading, and at
	// most 10 in WakeupDepth jobs. So a producer that is alone tells at most a tenth of WakeupDepth
	// late; of several each counts its own jobs. Delayed jobs have their events all the same. Each of
	// several queues is counted and read by itself. Negative is an error of every Send. Defaults to 0: every message is worth an event.
	WakeupDepth int

	// OnWakeupError receives every error of Wakeups and of the readings for WakeupDepth. It may be
	// called by several goroutines at once. Defaults to none: what nobody was told of waits for a
	// worker's poll.
	OnWakeupError func(error)

	// Interceptors wrap every Send, the first outermost. Defaults to none.
	Interceptors []Interceptor
}

// Producer sends jobs to one queue, or to several through one [queue.Sender]. Make one with [New]; the methods of the zero value return
// errors. It is safe for concurrent use.
type Producer[T any] struct {
	_ [0]sync.Mutex // go vet reports copies

	queue   queue.Sender
	options Options[T]
	wakeups *wakeups // nil without Options.Wakeups
}

// New returns a producer for the queue. It sends nothing. A nil queue panics, because it is a
// mistake in the program. Of a sender that is no [queue.Queue], Options.Create needs the method Create,
// Options.WakeupDepth needs Properties, and [Producer.Cancel] needs Delete, as a queue has them; or, for the
// last two, Lookup(queue.Name) (queue.Queue, bool), which returns the one of several queues that has the name.
func New[T any](q queue.Sender, o *Options[T]) *Producer[T] {
	if hook.IsNil(q) {
		panic("producer.New: the queue is nil")
	}
	p := &Producer[T]{queue: q}
	if o != nil {
		p.options = *o
	}
	if hook.IsNil(p.options.Claims) {
		p.options.Claims = nil
	}
	if hook.IsNil(p.options.Wakeups) {
		p.options.Wakeups = nil
	}
	p.wakeups = newWakeups(q, &p.options)
	if p.options.Codec == nil {
		p.options.Codec = codec.JSON[T]()
	}
	p.options.Timeout = cmp.Or(p.options.Timeout, defaultTimeout)
	return p
}

// What a [queue.Queue] can do beyond a [queue.Sender], and some options need.
type (
	creator interface {
		Create(ctx context.Context, metadata map[string]string) error
	}
	measurer interface {
		Properties(ctx context.Context) (queue.Properties, error)
	}
	deleter interface {
		Delete(ctx context.Context, l queue.Lease) error
	}
)

// finder is a sender over several queues that finds one of them by its name.
type finder interface {
	Lookup(name queue.Name) (queue.Queue, bool)
}

// queueNamed returns the queue of a sender with a name, which is the sender itself if it has no others; or
// nil.
func queueNamed(q queue.Sender, name queue.Name) queue.Sender {
	if f, several := q.(finder); several {
		if found, known := f.Lookup(name); known {
			return found
		}
	}
	if name == (queue.Name{}) || name == q.Name() {
		return q
	}
	return nil
}

func depthOf(ctx context.Context, q queue.Sender, name queue.Name) (queue.Properties, error) {
	one, can := queueNamed(q, name).(measurer)
	if !can {
		return queue.Properties{}, fmt.Errorf("a %T cannot read that of %v", q, name)
	}
	return one.Properties(ctx)
}

// checkSender returns an error if the options need more than the sender can do.
func (p *Producer[T]) checkSender() error {
	if _, can := p.queue.(creator); !can && p.options.Create {
		return p.cannot("Create", "create a queue")
	}
	_, can := p.queue.(measurer)
	if _, several := p.queue.(finder); !can && !several && p.options.WakeupDepth > 0 {
		return p.cannot("WakeupDepth", "read a depth")
	}
	return nil
}

func (p *Producer[T]) cannot(option, what string) error {
	return fmt.Errorf("send to %v: %s is set, and a %T cannot %s: leave it out", p.queue.Name(), option, p.queue, what)
}

// Sending is one Send on its way to the queue, as an [Interceptor] sees it.
type Sending struct {
	// Queue is the queue the job is sent to.
	Queue queue.Name

	// SendOptions are those of the Send, with the id that the job has if none was given. Changes made
	// before next is called apply.
	SendOptions

	// Kind is the type of the job on a queue of several, from Options.Kind. Empty for none. Changes
	// made before next is called apply.
	Kind string

	// Trace and TraceState are the W3C trace context, from Options.Trace. Empty for none. Changes made
	// before next is called apply, if the format is an envelope; others carry no trace context.
	Trace      string
	TraceState string

	// Items is the number of jobs of a group, and 0 for one job. Changes have no effect.
	Items int

	// Sent is the result after next has returned nil. Zero before.
	Sent Sent

	request   queue.EnqueueOptions // of the last request
	enqueued  time.Time            // for the envelope
	items     int                  // Items, which an interceptor may have changed
	claim     string               // of the body, if Claims has stored it
	claimed   [2]string            // jobOf the job for which it was stored
	least     time.Duration        // how much of its time a request needs
	bytes     int64                // of the text that was sent last
	maybeSent error                // why the job may be in the queue already; nil if it is not
	where     []queue.Name         // the queues that it may be in, for wake-ups
}

// Interceptor wraps a Send and does not depend on the type of the jobs, so that one serves
// every producer of a program: for logging, tracing and the like. It calls next, which sends,
// with ctx or a context derived from it, and returns next's error or another. If it does not
// call next, nothing is sent; it should then return an error. It must be safe for concurrent
// use.
type Interceptor func(ctx context.Context, s *Sending, next func(context.Context) error) error

// intercepted returns the function that sends the body, wrapped in the interceptors; the first
// is the outermost.
func (p *Producer[T]) intercepted(s *Sending, body []byte) func(context.Context) error {
	send := func(ctx context.Context) error { return p.enqueue(ctx, s, body) }
	for i := len(p.options.Interceptors) - 1; i >= 0; i-- {
		intercept, next := p.options.Interceptors[i], send
		send = func(ctx context.Context) error { return intercept(ctx, s, next) }
	}
	return send
}
