package dispatcher

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/internal/hook"
	"github.com/millrace/millrace/poison"
	"github.com/millrace/millrace/queue"
)

// delivery is one message on its way through the dispatcher, on a goroutine of
// its own.
type delivery[T any] struct {
	dispatcher    *Dispatcher[T]
	queued        queue.Message // with the newest receipt, once its handler has returned
	visibility    time.Duration // that was asked for
	start         bool          // whether its handler may start
	startRecorded bool          // whether the start of its handler is recorded in its text
	slot          slotState
	lease         lease

	head         codec.Head
	body         []byte
	format       codec.Format
	starts       int             // how many of the recorded starts count
	lastRecorded recordedStart   // what was known of the message when they were counted
	message      Message[T]      // what its handler gets
	ctx          context.Context // its handler's; nil when it never ran
	context      handlerContext  // what ctx points to, once it runs

	batch *batchSlots // of its batch

	next, before *delivery[T]            // in the list of what is in flight; guarded by dispatcher.mu
	cancel       context.CancelCauseFunc // of ctx; guarded by dispatcher.mu
}

// enveloped tells whether attempts are counted in the message itself.
func (v *delivery[T]) enveloped() bool { return v.format == codec.Envelope }

// attempt is the number of this run: one more than the failures recorded in the
// envelope, or the dequeue count of a foreign message, which stands for it.
func (v *delivery[T]) attempt() int {
	if v.enveloped() {
		return v.head.Attempts + 1
	}
	return int(min(v.queued.DequeueCount, 1<<30))
}

// missing is how many deliveries ended in nothing, as far as is recorded.
func (v *delivery[T]) lostDeliveries() int64 { return max(v.queued.DequeueCount-1-v.head.Settled, 0) }

// run takes the message from its slot to its settlement.
func (v *delivery[T]) run() {
	var err error
	v.head, v.body, v.format, err = v.open()
	v.countStarts()
	if dec, no := v.refuse(err); no {
		v.settle(dec, held, refused)
		return
	}
	v.settleBatchSlots()
	if dec, no := v.recordStart(); no { // before the body is decoded, which may kill as well
		v.excludeStart(unstarted)
		v.settle(dec, held, unstarted)
		return
	}
	if v.decode() {
		v.handle()
	}
}

// open reads the text. What was adopted is in an envelope, whatever the format.
func (v *delivery[T]) open() (codec.Head, []byte, codec.Format, error) {
	o := &v.dispatcher.options
	if o.Adopt {
		return codec.OpenAdopted(v.queued.Text, o.Format)
	}
	return codec.Open(v.queued.Text, o.Format)
}

// decode reads the body, or settles the message as one that cannot be read. A codec that
// panics, or ends the goroutine, has found what it cannot read.
func (v *delivery[T]) decode() (readable bool) {
	d := v.dispatcher
	returned := false
	var err error
	defer func() {
		if p := recover(); p != nil || !returned {
			err = newHookError(d.name, hook.Caught("Codec.Decode", p))
		}
		if readable = err == nil; !readable {
			v.excludeStart(unstarted)
			v.settle(v.poisoned(poison.ReasonUndecodable, safeError("codec", err)), held, unstarted)
		}
	}()
	v.message.Body, err = d.options.Codec.Decode(v.body)
	returned = true
	return
}

// handle runs the handler under a kept lease and settles what it said.
func (v *delivery[T]) handle() {
	d := v.dispatcher
	body := v.message.Body
	v.message = Message[T]{
		Body: body, ID: v.queued.ID, Queue: d.name, Head: v.head,
		Attempt: v.attempt(), MaxAttempts: d.options.Poison.MaxAttempts, DequeueCount: v.queued.DequeueCount,
		Inserted: v.queued.Inserted, Expires: v.queued.Expires,
		delivery: v,
	}
	timeout := v.timeout()
	begin := time.Now()
	ctx, cancel := context.WithCancelCause(d.handlers)
	v.context = handlerContext{Context: ctx, delivery: v}
	if timeout > 0 {
		v.lease.deadline = begin.Add(timeout)
		v.context.deadline = v.lease.deadline
	}
	v.ctx, v.lease.cancel, v.lease.watcher = &v.context, cancel, v
	d.setCancel(v, cancel)
	d.slots.started()
	d.leases.track(&v.lease, v.visibility)
	// What follows a call of the user's is deferred: runtime.Goexit in it runs nothing else.
	defer v.execute(begin)
	if d.options.Observer.Started != nil {
		d.options.Observer.Started(v.described())
	}
}

// timeout is how long the handler of the message may run, or zero for ever.
func (v *delivery[T]) timeout() time.Duration {
	o := &v.dispatcher.options
	if o.TimeoutFor == nil {
		return o.Timeout
	}
	var own time.Duration
	if !v.dispatcher.hooks.Contain("TimeoutFor", func() { own = o.TimeoutFor(&v.message) }) || own == 0 {
		return o.Timeout
	}
	return max(own, 0)
}

// execute calls the handler.
func (v *delivery[T]) execute(begin time.Time) {
	err := errGoexit
	defer func() { v.returned(err, begin) }()
	err = v.dispatcher.call(v.ctx, &v.message)
}

// returned takes the result of the handler that began then.
func (v *delivery[T]) returned(err error, begin time.Time) {
	d := v.dispatcher
	took := time.Since(begin)
	d.visibility.recordHandling(took)
	defer v.finish(err, begin)
	if d.options.Observer.Finished != nil {
		d.options.Observer.Finished(v.described(), took, err)
	}
}

// conclude settles what the handler returned.
func (v *delivery[T]) finish(err error, begin time.Time) {
	d := v.dispatcher
	v.excludeStart(handled)
	newest, state := d.leases.untrack(&v.lease)
	// Not the id, which observers may be reading.
	v.queued.Receipt, v.queued.Until = newest.Receipt, newest.Until
	ended := context.Cause(v.ctx)
	v.lease.cancel(nil)
	if err != nil && errors.Is(ended, ErrTimeout) {
		err = &overdueError{v.context.deadline.Sub(begin), err}
	}
	interrupted := errors.Is(ended, ErrStopping)
	if state == held && errors.Is(ended, ErrLeaseExpired) {
		// A renewal was so slow that the handler had to be told to end, and took effect.
		// It is not the job that failed.
		interrupted = true
		d.visibility.recordTooShort(v.visibility)
	}
	v.settle(v.decide(err, state, interrupted), state, handled)
}

// progress is how far a delivery has come when it is settled.
type progress int

const (
	refused   progress = iota // its handler must not run
	unstarted                 // its start could not be recorded, or its body not be read
	handled                   // its handler has returned
)

// leaveSlot frees the slot as the settlement begins.
func (v *delivery[T]) freeSlot(came progress) {
	slots := v.dispatcher.slots
	switch {
	case came == refused:
		slots.beginSettlement()
		v.batch.unused.Add(1)
		v.settleBatchSlots()
	case v.slot.CompareAndSwap(slotTaken, slotFreed):
		slots.freeForSettlement(came == handled)
	default: // given up: the slot is another's
		slots.beginSettlement()
	}
}

// call runs the handler, a panic in it becoming an error: one message's failure is
// its own.
func (d *Dispatcher[T]) call(ctx context.Context, m *Message[T]) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = safeError("handler", &PanicError{Value: p, Stack: debug.Stack()})
		}
	}()
	return safeError("handler", d.handler(ctx, m))
}

// renewed tells of a renewal of the lease, as the keeper's watcher.
func (v *delivery[T]) renewed(visibility time.Duration, err error) {
	o := &v.dispatcher.options
	if err != nil {
		o.OnError(err)
	}
	if o.Observer.Renewed != nil {
		o.Observer.Renewed(v.described(), visibility, err)
	}
}

// lost tells of the loss of the lease, as the keeper's watcher.
func (v *delivery[T]) lost(cause error) {
	if f := v.dispatcher.options.Observer.Lost; f != nil {
		f(v.described(), cause)
	}
}
