package dispatcher

import (
	"context"
	"fmt"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/envelope"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/queue"
)

// Dispatcher runs a handler for messages of one queue. Make one with [New]. It is safe for
// concurrent use. Call [Dispatcher.Start] before any other method and [Dispatcher.Drain] at the
// end.
type Dispatcher struct {
	queue         queue.Queue
	name          queue.Name
	newDeliveries func(n int) *delivery // linked by sibling; see message.go
	kinds         map[string]*Kind      // by name; nil for a queue of one kind
	features      []envelope.Feature    // of envelopes, that it understands
	stages        []stage               // between a message and its handler
	options       Options               // hooks are wrapped by Options.guard
	hooks         *hook.Guard

	slots      *slots
	visibility *visibilityEstimator
	thresholds thresholds
	failures   *failures
	leases     *leaseManager
	starts     starts
	workers    workers
	delayed    delayed

	handlers   context.Context // parent of the handlers' contexts, with the label of the queue; never ends, see stopHandlers
	unlabelled context.Context // has the labels of goroutines that run no handler; a lookup does not allocate
	requests   requests        // parents of settlements and renewals
	halted     chan struct{}   // closed by Halt
	stopping   chan struct{}   // closed by Stop
	halt       sync.Once

	backlog atomic.Bool // the last dequeue returned as many messages as it asked for

	inFlight sync.WaitGroup              // one per message dispatched and not settled
	counts   [len(outcomes)]atomic.Int64 // in the order of outcomes

	mu       sync.Mutex
	started  bool      // guarded by mu
	draining bool      // no further handler starts; guarded by mu
	stopped  bool      // handlers have been cancelled; guarded by mu
	active   *delivery // head of the list of deliveries in flight; guarded by mu
}

// newDispatcher returns a dispatcher that makes its deliveries with newDeliveries. Kinds is nil for
// a queue of one kind.
func newDispatcher(q queue.Queue, newDeliveries func(n int) *delivery, kinds map[string]*Kind, o *Options) (*Dispatcher, error) {
	options, err := o.withDefaults(q)
	if err != nil {
		return nil, fmt.Errorf("dispatcher of %v: %w", q.Name(), err)
	}
	hooks := options.guard(q.Name())
	d := &Dispatcher{
		queue: q, name: q.Name(), newDeliveries: newDeliveries, kinds: kinds, options: options, hooks: hooks,
		features:   options.understood(),
		slots:      newSlots(options.Concurrency, options.BatchSize, options.OnWait).share(options.Slots),
		visibility: newVisibilityEstimator(options.Visibility), failures: newFailures(&options, len(kinds)),
		halted: make(chan struct{}), stopping: make(chan struct{}),
	}
	if kinds != nil {
		d.features = append(d.features, envelope.Kinds)
	}
	d.stages = d.newStages()
	return d, nil
}

// Start makes the dispatcher ready. Handlers see the values of ctx but not its end:
// [Dispatcher.Drain] shuts down. It is an error if another dispatcher uses Options.Slots; then
// nothing has started. A second call panics, because it is a mistake in the program.
func (d *Dispatcher) Start(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.started {
		panic("dispatcher: started twice")
	}
	if err := d.slots.join(); err != nil {
		return fmt.Errorf("dispatcher of %v: %w", d.name, err)
	}
	d.started = true
	ctx = context.WithoutCancel(ctx)
	d.handlers = withQueueLabel(ctx, d.name)
	d.unlabelled = pprof.WithLabels(ctx, pprof.Labels())
	d.requests.start(ctx)
	d.leases = newLeaseManager(&d.requests, d.queue, d.visibility.forRenewal, d.options.StuckAfter)
	return nil
}

// Visibility returns the visibility timeout for the next dequeue, in whole seconds.
func (d *Dispatcher) Visibility() time.Duration { return d.visibility.forDequeue(d.leases.count()) }

// SettleTimeout returns the option of that name, or its default.
func (d *Dispatcher) SettleTimeout() time.Duration { return d.options.SettleTimeout }

// Running returns how many handlers run and how many settlements are in progress.
func (d *Dispatcher) Running() (handlers, settlements int) { return d.slots.counts() }

// Capacity returns how many handlers may run at the same time: the concurrency, or the number of
// shared slots if that is less.
func (d *Dispatcher) Capacity() int {
	n := d.slots.capacity()
	if d.options.Slots != nil {
		if shared, err := d.options.Slots.Size(); err == nil {
			n = min(n, shared)
		}
	}
	return n
}

// Handled returns how many handlers have returned since the start, and how long they took together.
// Handlers that were not called, see [NotRun], do not count.
func (d *Dispatcher) Handled() (handlers int64, took time.Duration) { return d.visibility.handled() }

// Outcomes returns how many deliveries ended with each outcome. An outcome without deliveries has no
// key. The map is the caller's.
func (d *Dispatcher) Outcomes() map[Outcome]int64 {
	counts := make(map[Outcome]int64, len(outcomes))
	for i, o := range outcomes {
		if n := d.counts[i].Load(); n > 0 {
			counts[o] = n
		}
	}
	return counts
}

// Renewed returns how many lease renewals succeeded.
func (d *Dispatcher) Renewed() int64 {
	d.leases.mu.Lock()
	defer d.leases.mu.Unlock()
	return d.leases.renewed
}

// Failing returns the sources of failures that are limited, the oldest first.
func (d *Dispatcher) Failing() []FailingSource { return d.failures.limited() }

// Late returns how many settlements failed because the visibility timeout had passed.
func (d *Dispatcher) Late() int64 { return d.visibility.lateCount() }

// Dispatch starts a handler for every message of a batch. It uses the reserved slots and frees the
// rest of them; an empty batch frees all. Asked is the time just before the dequeue was sent,
// visibility the timeout it asked for. Dispatch does not block. Once a drain has begun it gives the
// messages back instead. It also gives back messages beyond the reserved slots and reports them to
// OnError.
func (d *Dispatcher) Dispatch(batch []queue.Message, reserved int, asked time.Time, visibility time.Duration) {
	d.dispatch(batch, reserved, asked, visibility, false)
}

// GiveBack is [Dispatcher.Dispatch] for a queue that turned out to be paused. It gives the messages
// back without an attempt, visible immediately. A message without an envelope is different, because
// nothing can be recorded in it and each delivery counts as an attempt: it waits as long as after a
// failure, and on its last attempt its handler runs.
func (d *Dispatcher) GiveBack(batch []queue.Message, reserved int, asked time.Time, visibility time.Duration) {
	d.dispatch(batch, reserved, asked, visibility, true)
}

func (d *Dispatcher) dispatch(batch []queue.Message, reserved int, asked time.Time, visibility time.Duration, paused bool) {
	d.noteBacklog(len(batch) >= reserved)
	d.slots.received(len(batch), reserved)
	if len(batch) == 0 {
		d.slots.unreserve(reserved)
		d.failures.foundNothing()
		return
	}
	first := d.newDeliveries(len(batch))
	shared := &batchSlots{slots: d.slots}
	shared.undecided.Store(int32(len(batch)))
	shared.unused.Store(int32(reserved - len(batch))) // negative if the queue returned too many
	v := first
	for _, m := range batch {
		v.dispatcher, v.queued, v.admission.batch, v.admission.paused = d, m, shared, paused
		v.lease = lease{
			id: m.ID, asked: asked, visibility: visibility, messageEnd: endOfLife(m, asked, visibility),
			text: m.Text, newest: m.Lease, expiry: asked.Add(visibility - safetyMargin), index: -1,
		}
		v = v.sibling
	}
	d.add(first, len(batch), reserved)
	for v := first; v != nil; v = v.sibling {
		d.workers.assign(v)
	}
	if len(batch) > reserved {
		d.options.OnError(d.overfull(len(batch), reserved))
	}
}

// overfull returns the error for a dequeue that returned more messages than it asked for.
func (d *Dispatcher) overfull(got, asked int) error {
	return &queue.Error{
		Op: "dequeue", Queue: d.name,
		Detail: fmt.Sprintf("the dequeue returned %d messages instead of at most %d; %d are given back unhandled", got, asked, got-asked),
		Hint:   fmt.Sprintf("the fault is in the implementation of the queue: Dequeue of %T must not return more messages than requested", innermost(d.queue)),
	}
}

// add counts the messages as in flight and decides which handlers may start: as many as there
// are slots. Both happen under one lock, so that Drain waits for everything added before it
// and nothing starts after it.
func (d *Dispatcher) add(first *delivery, n, reserved int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inFlight.Add(n)
	for i, v := 0, first; v != nil; i, v = i+1, v.sibling {
		v.admission.reserved = !d.draining && i < reserved
		if v.next = d.active; v.next != nil {
			v.next.before = v
		}
		d.active = v
	}
}

// remove removes a settled delivery from the list.
func (d *Dispatcher) remove(v *delivery) {
	d.mu.Lock()
	if v.next != nil {
		v.next.before = v.before
	}
	if v.before != nil {
		v.before.next = v.next
	} else {
		d.active = v.next
	}
	d.mu.Unlock()
	d.inFlight.Done()
}

// setCancel makes the handler's context known to stopHandlers. The parent of all contexts never
// ends, because registering every context with a parent that does would make all handlers
// contend for its lock.
func (d *Dispatcher) setCancel(l *lease, cancel context.CancelCauseFunc) {
	d.mu.Lock()
	l.cancel = cancel
	stopped := d.stopped
	d.mu.Unlock()
	if stopped {
		cancel(ErrStopping)
	}
}

// stopHandlers cancels the contexts of all handlers, even of handlers that start later.
func (d *Dispatcher) stopHandlers() {
	d.mu.Lock()
	d.stopped = true
	var cancels []context.CancelCauseFunc
	for v := d.active; v != nil; v = v.next {
		if v.lease.cancel != nil {
			cancels = append(cancels, v.lease.cancel)
		}
	}
	d.mu.Unlock()
	for _, cancel := range cancels {
		cancel(ErrStopping)
	}
}

// handlersStopped reports whether stopHandlers was called.
func (d *Dispatcher) handlersStopped() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stopped
}

// endOfLife returns when the message expires, by our monotonic clock, or zero if it never does.
// The service's clock is known from the response: Until is its time plus the visibility. A second
// is subtracted because the service counts whole seconds.
func endOfLife(m queue.Message, asked time.Time, visibility time.Duration) time.Time {
	if m.Expires.IsZero() || m.Expires.Year() >= 9999 || m.Until.IsZero() {
		return time.Time{}
	}
	return asked.Add(m.Expires.Sub(m.Until) + visibility - safetyMargin)
}

// innermost returns the queue inside wrappers that only count.
func innermost(q queue.Queue) queue.Queue {
	for {
		w, ok := q.(interface{ Unwrap() queue.Queue })
		if !ok {
			return q
		}
		q = w.Unwrap()
	}
}
