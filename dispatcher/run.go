package dispatcher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/keyed"
	"github.com/millrace/millrace/queue"
)

// running holds the context of a handler, its slot, and its group. run writes it. The context
// begins before a claim is opened, because that may take as long as a handler.
type running struct {
	ctx   handlerContext
	begin time.Time // of the handler
	slot  slotState // by the worker, and by the report of a stuck handler
	group *group    // nil unless the message has a group of jobs; by the stage groups
}

// run runs the handler while the lease manager renews the lease. The result is decided on even if
// the handler ends the goroutine.
func (v *delivery) run() {
	d := v.dispatcher
	var timeout time.Duration
	if v.running.group == nil { // the items of a group have their own
		timeout = v.timeoutOf(v.job)
	}
	v.running.begin = time.Now()
	var deadline time.Time
	if timeout > 0 {
		deadline = v.running.begin.Add(timeout)
	}
	if v.tracked() { // since before its claim was opened
		d.leases.setDeadline(&v.lease, deadline)
	} else {
		v.lease.deadline = deadline
		v.trackLease()
	}
	v.running.ctx.deadline = deadline
	if d.options.Observer.Started != nil {
		d.options.Observer.Started(v.described())
	}
	pprof.SetGoroutineLabels(d.handlers)
	contained(v.call, func(err error) {
		pprof.SetGoroutineLabels(d.unlabelled)
		v.returned(err)
	})
}

// call runs the handler, for each item if the message has a group.
func (v *delivery) call() error {
	if v.running.group != nil {
		v.running.group.callItems()
		return nil
	}
	return v.intercept(&v.running.ctx, v.dispatcher.options.Interceptors, v.job, 0)
}

// intercept calls the handler inside the interceptors; the first is the outermost. The item is that
// of a group, or 0.
func (v *delivery) intercept(ctx context.Context, is []Interceptor, h handling, item int) error {
	if len(is) == 0 {
		return h.callHandler(ctx)
	}
	return is[0](ctx, v.describedItem(item), func(ctx context.Context) error { return v.intercept(ctx, is[1:], h, item) })
}

// returned takes the result of the handler, releases the lease, and passes both on.
func (v *delivery) returned(err error) {
	d := v.dispatcher
	took := time.Since(v.running.begin)
	var said *resultError // the request in err; the errors of a group are classified already
	var called bool
	if g := v.running.group; g != nil {
		called, err = g.called(), g.err(unsuccessful)
	} else {
		said = explicitResult(err)
		called = !said.postponed()
	}
	if called {
		d.visibility.recordHandling(took)
	}
	if d.options.Observer.Finished != nil {
		d.options.Observer.Finished(v.described(), took, err)
	}
	v.notifyReturned(called)
	ended := v.release()
	if err != nil && errors.Is(ended, ErrTimeout) {
		err = &overdueError{v.running.ctx.deadline.Sub(v.running.begin), err}
	}
	interrupted := errors.Is(ended, ErrStopping)
	if v.lease.state == held && errors.Is(ended, ErrLeaseExpired) {
		// The handler was cancelled because a renewal was slow, but the renewal succeeded. The
		// job has not failed.
		interrupted = true
		d.visibility.recordTooShort(v.lease.visibility)
	}
	v.decide(v.resultOf(err, said, interrupted), called)
}

// notifyReturned tells the stages that the delivery ran as far as it could.
func (v *delivery) notifyReturned(called bool) {
	for i := len(v.dispatcher.stages) - 1; i >= 0; i-- {
		v.dispatcher.stages[i].returned(v, called)
	}
}

// trackLease makes the context of the handler and begins to renew the lease. From here on the
// delivery counts as running.
func (v *delivery) trackLease() {
	d := v.dispatcher
	ctx, cancel := context.WithCancelCause(d.handlers)
	v.running.ctx = handlerContext{Context: ctx, delivery: v}
	v.lease.delivery = v
	d.setCancel(&v.lease, cancel)
	d.slots.started()
	d.leases.track(&v.lease)
}

// tracked reports whether trackLease was called.
func (v *delivery) tracked() bool { return v.lease.delivery != nil }

// release ends the context and the renewals of the lease. It returns why the context had ended
// before, if it had. From then on the lease is no longer the lease manager's.
func (v *delivery) release() (ended error) {
	v.dispatcher.leases.untrack(&v.lease)
	ended = context.Cause(v.running.ctx.Context)
	v.lease.cancel(nil)
	return ended
}

// timeoutOf returns the handler's time-out for this message or item; zero or less means no
// time-out.
func (o *opened) timeoutOf(h handling) time.Duration {
	if own := h.ownTimeout(); own != 0 {
		return own
	}
	if o.kind != nil && o.kind.options.Timeout != 0 {
		return o.kind.options.Timeout
	}
	return o.dispatcher.options.Timeout
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

// renewed reports a renewal. The lease manager calls it while the handler runs.
func (v *delivery) renewed(visibility time.Duration, err error) {
	o := &v.dispatcher.options
	if err != nil {
		o.OnError(err)
	}
	if o.Observer.Renewed != nil {
		o.Observer.Renewed(v.described(), visibility, err)
	}
}

// lost reports that the lease has ended. The lease manager calls it while the handler runs.
func (v *delivery) lost(cause error) {
	if f := v.dispatcher.options.Observer.Lost; f != nil {
		f(v.described(), cause)
	}
}

// DeliveryFrom returns the delivery that ctx belongs to, for code that a handler calls without its
// message, such as a logger. It returns false outside of a handler, and for the context of a
// [BatchHandler], which has several deliveries.
func DeliveryFrom(ctx context.Context) (Delivery, bool) {
	switch of := ctx.Value(deliveryKey{}).(type) {
	case *delivery:
		return of.described(), true
	case *itemContext:
		return of.delivery.describedItem(of.item), true
	}
	return Delivery{}, false
}

// deliveryKey is the key of a delivery in its handler's context.
type deliveryKey = keyed.DeliveryKey

// handlerContext is the context of a handler. It is part of the delivery, which saves an
// allocation, and its deadline needs no timer because the lease manager enforces it.
type handlerContext struct {
	context.Context
	delivery *delivery
	deadline time.Time // zero for none
}

// Deadline returns the end of the handler's time-out.
func (c *handlerContext) Deadline() (time.Time, bool) { return c.deadline, !c.deadline.IsZero() }

// Err returns context.DeadlineExceeded after the time-out. Contexts derived from this one
// return context.Canceled; context.Cause tells why.
func (c *handlerContext) Err() error {
	err := c.Context.Err()
	if err != nil && errors.Is(context.Cause(c.Context), ErrTimeout) {
		return context.DeadlineExceeded
	}
	return err
}

// Value returns the delivery for its key.
func (c *handlerContext) Value(key any) any {
	if key == (deliveryKey{}) {
		return c.delivery
	}
	return c.Context.Value(key)
}

// withoutDelivery is a context that hides its delivery.
type withoutDelivery struct{ context.Context }

// Value returns no delivery.
func (c withoutDelivery) Value(key any) any {
	if key == (deliveryKey{}) {
		return nil
	}
	return c.Context.Value(key)
}

// maxStacks bounds the size of the stacks in bytes.
const maxStacks = 256 << 10

// slotState tells whether a delivery still has its slot. The handler's return and the check for
// stuck handlers race for it, and only one may free it.
type slotState = atomic.Int32

const (
	slotTaken int32 = iota
	slotFreed       // by giving the handler up, or by its settlement
)

// stuck reports the handler, or the download of its body. The lease manager calls it at most once,
// while that runs, or once for each item of a group that is stuck after another has returned.
func (v *delivery) stuck() {
	d := v.dispatcher
	givenUp := d.options.GiveUp && v.running.slot.CompareAndSwap(slotTaken, slotFreed)
	if givenUp {
		d.slots.giveUp()
	}
	cause := context.Cause(v.running.ctx.Context)
	if cause == nil { // the context of an item has ended
		cause = ErrTimeout
	}
	d.options.OnError(&StuckError{
		Queue: d.name, ID: v.queued.ID, Cause: cause, For: d.options.StuckAfter,
		GivenUp: givenUp, Stacks: handlerStacks(d.name),
	})
}

// queueLabel is the key of the goroutine label with the queue of the handler that runs. Goroutines
// that the handler starts inherit it, and every profile shows it.
const queueLabel = "millrace.queue"

func withQueueLabel(ctx context.Context, of queue.Name) context.Context {
	return pprof.WithLabels(ctx, pprof.Labels(queueLabel, of.String()))
}

// handlerStacks returns the stacks of the goroutines that have the queue's label.
func handlerStacks(of queue.Name) []byte {
	var all bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&all, 1) // a buffer does not fail
	label := fmt.Appendf(nil, "%q:%q", queueLabel, of.String())
	var ours []byte
	for one := range bytes.SplitSeq(all.Bytes(), []byte("\n\n")) {
		if bytes.Contains(one, label) {
			ours = append(append(ours, one...), "\n\n"...)
		}
	}
	return ours[:min(len(ours), maxStacks)]
}
