package dispatcher

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
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

// room is the slots that a batch does not need. They are freed together, when it is known
// which they are: they are worth one dequeue, not several small ones.
type batchSlots struct {
	undecided atomic.Int32 // messages that may be refused yet
	unused    atomic.Int32 // slots of what is refused, or of no message
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

// newerDelay is how long a message of a newer release is left to a newer worker.
const newerDelay = 30 * time.Second

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

// refuse decides on a message whose handler must not run. Poison comes before decoding
// and handling: what a worker died of must not be touched again.
func (v *delivery[T]) refuse(unread error) (dec decision, refused bool) {
	bounds := v.dispatcher.options.Poison
	took := time.Since(v.lease.asked)
	v.dispatcher.visibility.recordDequeue(took, v.visibility)
	switch {
	case took >= v.visibility-safetyMargin:
		// The answer took as long as the lease: somebody else may have the message.
		return decision{outcome: Lost, err: ErrLeaseExpired}, true
	case !v.start:
		return decision{outcome: GivenBack}, true
	case errors.Is(unread, codec.ErrNewer):
		return decision{outcome: Snoozed, delay: newerDelay, err: unread}, true
	case unread != nil:
		return v.poisoned(poison.ReasonUndecodable, unread), true
	case v.head.Poison != "":
		return v.poisoned(poison.Reason(v.head.Poison), errors.New("it was poison at an earlier delivery and could not be moved")), true
	case v.starts >= bounds.MaxLost:
		return v.poisoned(poison.ReasonLost, fmt.Errorf("%d handlers in a row started and nothing came of it: the worker died or lost its lease", v.starts)), true
	case v.attempt() > bounds.MaxAttempts:
		return v.poisoned(poison.ReasonAttempts, errors.New("every attempt failed, or ended without a result because the worker died or lost its lease")), true
	case v.lifeEnds(time.Second):
		return v.poisoned(poison.ReasonExpiring, errors.New("its life ends before a handler could finish")), true
	}
	return decision{}, false
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

// decided frees the slots that the batch does not need, when that is known of its last
// message.
func (v *delivery[T]) settleBatchSlots() {
	if v.batch.undecided.Add(-1) > 0 {
		return
	}
	if n := v.batch.unused.Load(); n > 0 {
		v.dispatcher.slots.unreserve(int(n))
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

// decision is what is to be done with a message.
type decision struct {
	outcome Outcome
	delay   time.Duration
	reason  poison.Reason
	err     error
}

// decide turns a handler's result into what is to be done. A handler that was interrupted
// has not failed.
func (v *delivery[T]) decide(err error, state leaseState, interrupted bool) decision {
	said := explicitResult(err)
	explicit := said != nil
	switch {
	case state == expired && err != nil && v.lifeEnds(MinVisibility):
		return v.poisoned(poison.ReasonExpiring, err)
	case state == lost, state == expired && err != nil:
		return decision{outcome: Lost, err: errors.Join(cause(state), err)}
	case err == nil:
		return decision{outcome: Deleted}
	case interrupted && (!explicit || said.outcome == Retried || said.outcome == Snoozed || isCanceled(err)):
		return decision{outcome: GivenBack}
	case explicit && said.outcome == Discarded:
		return decision{outcome: Discarded, err: err}
	case explicit && said.outcome == Poisoned:
		return v.poisoned(poison.ReasonRejected, err)
	case explicit && said.outcome == Snoozed:
		return v.later(Snoozed, said.delay, nil)
	case v.attempt() >= v.dispatcher.options.Poison.MaxAttempts:
		return v.poisoned(poison.ReasonAttempts, err)
	case explicit:
		return v.later(Retried, said.delay, err)
	}
	return v.later(Retried, v.retryDelay(v.attempt(), err), err)
}

// lifeEnds tells whether the message's own life is over but for less than so long: if
// that is too short for anybody else to handle it, what its handler did not finish is
// worth a copy.
func (v *delivery[T]) lifeEnds(left time.Duration) bool {
	return !v.lease.messageEnd.IsZero() && time.Until(v.lease.messageEnd) < left
}

func cause(s leaseState) error {
	if s == lost {
		return ErrLeaseLost
	}
	return ErrLeaseExpired
}

// later gives the message back for another delivery after the delay, or less if its
// life ends before that could be handled; with no second left it is poison, because
// the service would drop it in silence (invariant 1).
func (v *delivery[T]) later(outcome Outcome, delay time.Duration, err error) decision {
	if !v.lease.messageEnd.IsZero() {
		room := time.Until(v.lease.messageEnd) - v.dispatcher.Visibility()
		if room < time.Second {
			return v.poisoned(poison.ReasonExpiring, err)
		}
		delay = min(delay, room.Truncate(time.Second))
	}
	return decision{outcome: outcome, delay: delay, err: err}
}

// poisoned moves the message away, or keeps it hidden where there is nowhere to
// move it to.
func (v *delivery[T]) poisoned(reason poison.Reason, err error) decision {
	if v.dispatcher.options.Poison.Keep {
		return decision{outcome: Kept, delay: maxRetryDelay, reason: reason, err: err}
	}
	return decision{outcome: Poisoned, reason: reason, err: err}
}
