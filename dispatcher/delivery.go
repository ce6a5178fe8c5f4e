package dispatcher

import (
	"context"
	"errors"
	"runtime/pprof"
	"time"

	"github.com/millrace/millrace/codec"
	"github.com/millrace/millrace/queue"
)

// delivery is one message from its dequeue to its settlement, on a goroutine of its own.
type delivery struct {
	dispatcher    *Dispatcher
	queued        queue.Message // has the newest receipt once the handler has returned
	visibility    time.Duration // the dequeue asked for
	start         bool          // whether its handler may start
	startRecorded bool          // whether the start of its handler is recorded in its text
	marked        bool          // whether it was poison before and could not be moved
	forOthers     bool          // whether it is left to workers that know more than this one
	released      bool          // whether it was given back
	delay         time.Duration // how long it is hidden then
	slot          slotState
	lease         lease

	head         codec.Head
	body         []byte   // as the text carried it; empty if the message has a claim; handlers may change it
	claimed      []byte   // the body of its claim, until it is decoded
	claimSum     uint64   // sumOf the body of its claim
	unsure       []string // claims of bodies that the message may have instead, because the outcome of a save is unknown
	saved        bool     // whether a save has replaced the body with which the message came
	original     string   // its claim then: a duplicate, or a copy in the poison queue, may have it too
	deleted      bool     // whether it is certain that the message was deleted
	postponed    bool     // whether middleware did not call the handler: see Postpone
	format       codec.Format
	starts       int             // how many of the recorded starts count
	lastRecorded recordedStart   // what this process knew of the message when starts were counted
	ctx          context.Context // the handler's; nil if no handler ran
	context      handlerContext  // storage of ctx
	group        *group          // nil unless the message has a group of jobs; set before its handler runs

	admittedAt time.Time   // when the breaker of its kind let it through; zero if it did not
	kind       *Kind       // of its job, once opened; nil if the queue has no kinds or its kind is unknown
	job        job         // this delivery with its type; constant, on a queue of kinds once opened
	sibling    *delivery   // the next one of its batch; constant
	batch      *batchSlots // shared with its batch

	next, before *delivery               // list of deliveries in flight; guarded by dispatcher.mu
	cancel       context.CancelCauseFunc // of ctx; guarded by dispatcher.mu
}

// enveloped reports whether the message has an envelope, which counts attempts.
func (v *delivery) enveloped() bool { return v.format == codec.Envelope }

// attempt returns the number of this attempt: the recorded failures plus one, or for a message
// without an envelope its dequeue count.
func (v *delivery) attempt() int {
	if v.enveloped() {
		return v.head.Attempts + 1
	}
	return int(min(v.queued.DequeueCount, 1<<30))
}

// lostDeliveries returns how many earlier deliveries are not accounted for.
func (v *delivery) lostDeliveries() int64 { return max(v.queued.DequeueCount-1-v.head.Settled, 0) }

// run processes the message from its slot to its settlement.
func (v *delivery) run() {
	var err error
	v.head, v.body, v.format, err = v.open()
	if err == nil {
		err = v.chooseKind()
	}
	v.marked = v.head.Poison != ""
	v.countStarts()
	if !v.admitted(err) {
		return
	}
	if dec, no := v.recordStart(); no { // before the body is decoded, which may kill the worker too
		v.settleUnstarted(dec)
		return
	}
	if v.head.Claim != "" && !v.fetch() {
		return
	}
	if v.decode() {
		v.claimed = nil // the handler has it as T: do not hold it twice
		v.handle()
	}
}

// admitted settles a message that must not be handled. A job that was handled before is never poison,
// however often its message came again.
func (v *delivery) admitted(unread error) bool {
	came := refused
	dec, no := v.refuse(unread)
	if !no && v.dispatcher.options.Duplicates != nil {
		v.settleBatchSlots() // before the call, which may take a while
		came = unstarted
		dec, no = v.refuseDuplicate()
	}
	if !no {
		dec, no = v.refusePoison()
	}
	switch {
	case no:
		v.settle(dec, held, came)
	case came == refused:
		v.settleBatchSlots()
	}
	return !no
}

// open reads the text. With Adopt an envelope is recognised whatever the format.
func (v *delivery) open() (codec.Head, []byte, codec.Format, error) {
	o := &v.dispatcher.options
	if o.Adopt {
		return codec.OpenAdopted(v.queued.Text, o.Format, v.dispatcher.features...)
	}
	return codec.Open(v.queued.Text, o.Format, v.dispatcher.features...)
}

// decode reads the body, or settles the message as undecodable.
func (v *delivery) decode() (readable bool) {
	var err error
	if v.head.Items > 0 {
		err = v.openGroup()
	} else {
		err = v.job.decodeBody()
	}
	if err != nil {
		v.settleUnstarted(v.unreadable(err))
	}
	return err == nil
}

// handle runs the handler while the lease manager renews the lease, then settles the message by
// the result.
func (v *delivery) handle() {
	d := v.dispatcher
	var timeout time.Duration // the items of a group have their own
	if v.group == nil {
		timeout = v.timeoutOf(v.job)
	}
	begin := time.Now()
	var deadline time.Time
	if timeout > 0 {
		deadline = begin.Add(timeout)
	}
	if v.tracked() { // since before its claim was opened
		d.leases.setDeadline(&v.lease, deadline)
	} else {
		v.lease.deadline = deadline
		v.trackLease()
	}
	v.context.deadline = deadline
	v.ctx = &v.context
	if d.options.Observer.Started != nil {
		d.options.Observer.Started(v.described())
	}
	pprof.SetGoroutineLabels(d.handlers)
	contained(v.call, func(err error) {
		pprof.SetGoroutineLabels(d.unlabelled)
		v.returned(err, begin)
	})
}

// trackLease makes the context of the handler and begins to renew the lease. From here on the
// delivery counts as running.
func (v *delivery) trackLease() {
	d := v.dispatcher
	ctx, cancel := context.WithCancelCause(d.handlers)
	v.context = handlerContext{Context: ctx, delivery: v}
	v.lease.cancel, v.lease.delivery = cancel, v
	d.setCancel(v, cancel)
	d.slots.started()
	d.leases.track(&v.lease, v.visibility)
}

// tracked reports whether trackLease was called.
func (v *delivery) tracked() bool { return v.lease.cancel != nil }

// timeoutOf returns the handler's time-out for this message or item; zero or less means none.
func (v *delivery) timeoutOf(h handling) time.Duration {
	if own := h.ownTimeout(); own != 0 {
		return own
	}
	if v.kind != nil && v.kind.options.Timeout != 0 {
		return v.kind.options.Timeout
	}
	return v.dispatcher.options.Timeout
}

// returned handles the result of a handler that began at that time.
func (v *delivery) returned(err error, begin time.Time) {
	d := v.dispatcher
	took := time.Since(begin)
	v.postponed = v.wasPostponed(err)
	if !v.postponed {
		d.visibility.recordHandling(took)
	}
	if d.options.Observer.Finished != nil {
		d.options.Observer.Finished(v.described(), took, err)
	}
	v.finish(err, begin)
}

// finish settles the message by the handler's result.
func (v *delivery) finish(err error, begin time.Time) {
	d := v.dispatcher
	came := handled
	if v.postponed {
		came = unstarted
	}
	v.excludeStart(came)
	newest, state := d.leases.untrack(&v.lease)
	// The id is not assigned: observers may be reading it.
	v.queued.Receipt, v.queued.Until = newest.Receipt, newest.Until
	ended := context.Cause(v.ctx)
	v.lease.cancel(nil)
	if err != nil && errors.Is(ended, ErrTimeout) {
		err = &overdueError{v.context.deadline.Sub(begin), err}
	}
	interrupted := errors.Is(ended, ErrStopping)
	if state == held && errors.Is(ended, ErrLeaseExpired) {
		// The handler was cancelled because a renewal was slow, but the renewal succeeded. The
		// job has not failed.
		interrupted = true
		d.visibility.recordTooShort(v.visibility)
	}
	var dec decision
	if v.group != nil {
		v.recordProgress(&v.head)
		dec = v.decideGroup(state)
	} else {
		dec = v.decide(err, state, interrupted)
	}
	dec.postponed = v.postponed
	v.settle(dec, state, handled)
}

// wasPostponed reports whether middleware did not call the handler, for any item of a group.
func (v *delivery) wasPostponed(err error) bool {
	if v.group != nil {
		return v.group.postponed()
	}
	return isPostponed(err)
}

// started reports whether the handler was called.
func (v *delivery) started() bool { return v.ctx != nil && !v.postponed }

// progress is how far a delivery came before it was settled.
type progress int

const (
	refused   progress = iota // the handler must not run
	unstarted                 // the handler did not start, after a call that may have taken a while
	handled                   // the handler has returned
)

// freeSlot frees the slot when the settlement begins.
func (v *delivery) freeSlot(came progress) {
	slots := v.dispatcher.slots
	switch {
	case came == refused:
		slots.beginSettlement()
		v.batch.unused.Add(1)
		v.settleBatchSlots()
	case v.slot.CompareAndSwap(slotTaken, slotFreed):
		slots.freeForSettlement(v.tracked())
	default: // given up: another handler has the slot
		slots.beginSettlement()
	}
}

// call runs the handler, for each item if the message has a group.
func (v *delivery) call() error {
	if v.group != nil {
		return v.callItems()
	}
	return v.intercept(v.ctx, v.dispatcher.options.Interceptors, v.job, 0)
}

// contained calls a handler, and then done with its result. A panic is an error, and so is
// runtime.Goexit, which t.FailNow calls: the goroutine still ends then, but calls done before. The
// text of the error is asked for here, because a nil pointer in a non-nil error panics.
func contained(call func() error, done func(error)) {
	err := errGoexit
	defer func() {
		if p := recover(); p != nil {
			err = caughtPanic(p)
		}
		done(err)
	}()
	result := call()
	if result != nil {
		_ = result.Error()
	}
	err = result
}

func (v *delivery) renewed(visibility time.Duration, err error) {
	o := &v.dispatcher.options
	if err != nil {
		o.OnError(err)
	}
	if o.Observer.Renewed != nil {
		o.Observer.Renewed(v.described(), visibility, err)
	}
}

func (v *delivery) lost(cause error) {
	if f := v.dispatcher.options.Observer.Lost; f != nil {
		f(v.described(), cause)
	}
}
