package dispatcher

import (
	"log/slog"
	"sync"
	"time"

	"github.com/millrace/millrace/queue"
)

// delivery is one message from its dequeue to its settlement. It passes through five stages, each
// of which has a part of it and hands it on to the next: open, admit, run, decide and settle. The
// parts are values, so that the deliveries of a batch are one allocation. The decision is passed to
// settle.
//
// The worker that runs it owns it and writes all of it, and the handler is called by the worker.
// Fields with other writers say so.
type delivery struct {
	opened
	admission  admission
	running    running
	settlement settlement

	job          job       // this delivery with its type; set when it is made, or on a queue of kinds by their stage
	sibling      *delivery // the next one of its batch; constant
	next, before *delivery // list of deliveries in flight; guarded by Dispatcher.mu
}

// workers are goroutines that run deliveries, one at a time each, and are reused. A new goroutine
// begins with a small stack, and growing it for a request costs more than the rest of a delivery; a
// reused one has grown. Their number is the highest number of deliveries in flight so far.
//
// The worker that has waited least is taken first. The garbage collector shrinks the stacks of
// waiting goroutines: taking turns would make all of them grow again and again, while this way
// the unneeded ones shrink and stay small.
type workers struct {
	all sync.WaitGroup

	mu     sync.Mutex
	idle   []chan<- *delivery // channels of the waiting workers; guarded by mu
	closed bool               // no worker waits any more; guarded by mu
}

// assign passes the delivery to a waiting worker, or to a new one. It does not block.
func (w *workers) assign(v *delivery) {
	w.mu.Lock()
	last := len(w.idle) - 1
	if last < 0 {
		w.mu.Unlock()
		w.all.Go(func() { w.work(v) })
		return
	}
	next := w.idle[last]
	w.idle = w.idle[:last]
	w.mu.Unlock()
	next <- v // has room: the worker is not in idle until it waits again
}

func (w *workers) work(v *delivery) {
	next := make(chan *delivery, 1)
	for ok := true; ok; {
		v.open()
		if !w.wait(next) {
			return
		}
		v, ok = <-next
	}
}

// wait adds the worker to the idle ones, or returns false if it must end.
func (w *workers) wait(next chan<- *delivery) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed {
		w.idle = append(w.idle, next)
	}
	return !w.closed
}

// close ends the waiting workers, and the others when they are done. Assign must not be called
// after it.
func (w *workers) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, next := range w.idle {
		close(next)
	}
	w.idle = nil
}

func (w *workers) join() { w.all.Wait() }

// Delivery describes one delivery of a message. Handlers have it in their [Message], and code that
// does not know the type of its jobs has it alone: an [Observer], an [Interceptor], a
// log. It may be kept.
type Delivery struct {
	// Queue is the queue the message came from.
	Queue queue.Name

	// ID identifies the message within its queue. It stays the same over redeliveries.
	ID queue.ID

	// Job is the job id from the envelope. It stays the same when the job is moved or sent again:
	// use it to recognise duplicates. Empty for a message without an envelope.
	Job string

	// Kind is the type of the job on a queue of several. Empty for a job without one.
	Kind string

	// Key is what the job belongs to, such as a customer, as the producer set it. May be empty.
	Key string

	// DedupeKey is equal for jobs that are the same job sent twice, as the producer set it. May be
	// empty.
	DedupeKey string

	// Attempt is the number of this attempt, 1 for the first: the recorded failures plus one.
	// For a message without an envelope it is the dequeue count, which also counts workers that
	// died holding the message.
	Attempt int

	// MaxAttempts is the number of the last attempt, from the [Kind] or Options.Poison.
	MaxAttempts int

	// DequeueCount is how often the message was dequeued, including this time.
	DequeueCount int64

	// Inserted is when the service accepted the message, by its clock.
	Inserted time.Time

	// Enqueued is when the job was sent, by the producer's clock. Zero for a message without an
	// envelope.
	Enqueued time.Time

	// Expires is when the service drops the message, by its clock. A message that never expires
	// has a date in the year 9999.
	Expires time.Time

	// Trace and TraceState are the producer's W3C trace context. May be empty.
	Trace      string
	TraceState string

	// Item is the index of the job in its group, from 0. Job and Item identify a job of a group.
	// 0 for a job without a group. See [EachItem].
	Item int

	// Items is how many jobs the group has. 0 for a job without a group.
	Items int

	ofItem bool // whether it is for the handler of one item
}

// Last reports whether this is the last attempt: an error other than a [Snooze] then moves the
// message to the poison queue. It is false while attempts do not count because nearly everything
// fails: MaxAttempts is then higher than Attempt.
func (d Delivery) Last() bool { return d.AttemptsLeft() == 0 }

// AttemptsLeft returns how many attempts remain after this one.
func (d Delivery) AttemptsLeft() int { return max(d.MaxAttempts-d.Attempt, 0) }

// LogValue returns the attributes queue, message, job, kind, item and attempt as a group.
func (d Delivery) LogValue() slog.Value { return slog.GroupValue(d.attrs()...) }

func (d Delivery) attrs() []slog.Attr {
	attrs := append(make([]slog.Attr, 0, 9), slog.String("queue", d.Queue.String()), slog.String("message", string(d.ID)))
	if d.Job != "" {
		attrs = append(attrs, slog.String("job", d.Job))
	}
	if d.Kind != "" {
		attrs = append(attrs, slog.String("kind", d.Kind))
	}
	if d.ofItem {
		attrs = append(attrs, slog.Int("item", d.Item))
	}
	return append(attrs, slog.Int("attempt", d.Attempt))
}

// describedItem returns the description of the delivery for the handler of an item.
func (o *opened) describedItem(item int) Delivery {
	d := o.described()
	d.Item, d.ofItem = item, d.Items > 0
	return d
}

// described returns the description of the delivery. It may run while the head is being
// changed, so it reads only fields that never change and the attempts.
func (o *opened) described() Delivery {
	return Delivery{
		Queue: o.dispatcher.name, ID: o.queued.ID,
		Job: o.head.ID, Kind: o.head.Kind, Key: o.head.Key, DedupeKey: o.head.Dedupe,
		Attempt: o.attempt(), MaxAttempts: o.maxAttempts(), DequeueCount: o.queued.DequeueCount,
		Inserted: o.queued.Inserted, Enqueued: o.head.Enqueued, Expires: o.queued.Expires,
		Trace: o.head.Trace, TraceState: o.head.TraceState, Items: o.head.Items,
	}
}
